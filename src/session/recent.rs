//! The models that were chosen in a project, the newest first: where nobody says otherwise, the next
//! session there begins with the first of them.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::{Environment, private_dir};
use crate::message::ModelRef;
use crate::model::registry::Registry;

const MOST: usize = 5;

/// The file of one project.
#[derive(Debug, Clone)]
pub struct RecentModels {
    path: PathBuf,
    project: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct RecentFile {
    /// For people, and because two projects may have one digest.
    project: String,
    models: Vec<ModelRef>,
}

impl RecentModels {
    /// That of the project with this root.
    pub fn of(environment: &Environment, root: &Path) -> Self {
        let project = root.display().to_string();
        let digest = ring::digest::digest(&ring::digest::SHA256, project.as_bytes());
        let name: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { path: environment.dirs.data.join("projects").join(name + ".json"), project }
    }

    /// What was chosen. Nothing where nothing can be read.
    pub fn read(&self) -> Vec<ModelRef> {
        let content: RecentFile =
            std::fs::read(&self.path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if content.project == self.project { content.models } else { Vec::new() }
    }

    /// Remembers a choice.
    ///
    /// # Errors
    /// The system's, where the file cannot be written; it is then as it was.
    pub fn chosen(&self, model: &ModelRef) -> std::io::Result<()> {
        // What is not a model that was chosen for its work is not chosen for the next session.
        if [Registry::OFFLINE, ModelRef::REPLAY].contains(&model.provider.as_str()) {
            return Ok(());
        }
        let mut models = self.read();
        models.retain(|known| (&known.provider, &known.model) != (&model.provider, &model.model));
        models.insert(0, model.clone());
        models.truncate(MOST);
        let dir = self.path.parent().unwrap_or(Path::new("."));
        private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec(&RecentFile { project: self.project.clone(), models })?)?;
        file.persist(&self.path).map(drop).map_err(|e| e.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_each_project_has_its_own() {
        let home = tempfile::tempdir().unwrap();
        let environment = Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        let (one, other) =
            (RecentModels::of(&environment, Path::new("/a")), RecentModels::of(&environment, Path::new("/b")));
        let model = |text: &str, effort: Option<&str>| ModelRef {
            effort: effort.map(str::to_owned),
            ..ModelRef::parse(text).unwrap()
        };
        for name in ["p/1", "p/2", "p/3", "p/4", "p/5", "p/6", "offline/offline", "replay:/x"] {
            one.chosen(&model(name, None)).unwrap();
        }
        one.chosen(&model("p/3", Some("high"))).unwrap();
        let names: Vec<_> = one.read().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["p/3", "p/6", "p/5", "p/4", "p/2"]);
        assert_eq!(one.read()[0].effort.as_deref(), Some("high"));
        assert_eq!(other.read(), []);
        std::fs::write(&one.path, "damaged").unwrap();
        assert_eq!(one.read(), []);
    }
}
