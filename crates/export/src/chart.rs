//! Draws the tokens and the cost of a session as a small chart.

use std::fmt::Write as _;

/// The usage of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageStep {
    /// Input that was not cached.
    pub input: u64,
    /// Input from the cache.
    pub cached: u64,
    /// Output and reasoning.
    pub output: u64,
    /// The cost in US dollars, if known.
    pub cost: Option<f64>,
}

impl UsageStep {
    fn tokens(&self) -> u64 {
        self.input + self.cached + self.output
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 54.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 22.0;

/// The number of bars. More could not be distinguished, so neighbours are drawn as one bar, the
/// largest.
const MAX_BARS: usize = 160;

/// Draws a stacked bar per step, and the cumulative cost as a line. Returns an empty string if no
/// tokens were counted.
pub fn chart(steps: &[UsageStep]) -> String {
    let most = steps.iter().map(UsageStep::tokens).max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let per_bar = steps.len().div_ceil(MAX_BARS).max(1);
    let bars: Vec<UsageStep> = steps
        .chunks(per_bar)
        .filter_map(|of| of.iter().max_by_key(|s| s.tokens()).copied())
        .collect();
    let top = round(most);
    let width = WIDTH - LEFT - RIGHT;
    let height = HEIGHT - TOP - BOTTOM;
    let slot = width / real(bars.len());
    let bar = (slot * 0.72).clamp(1.0, 26.0);
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Tokens per step and cost so far\">"
    );
    for n in 0..=4u32 {
        let y = TOP + height * (1.0 - f64::from(n) / 4.0);
        let label = short(top * u64::from(n) / 4);
        write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        )
        .ok();
        write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 3.5
        )
        .ok();
    }
    for (n, step) in bars.iter().enumerate() {
        let x = LEFT + slot * real(n) + (slot - bar) / 2.0;
        let mut y = TOP + height;
        let title = format!(
            "{} in, {} cached, {} out",
            short(step.input),
            short(step.cached),
            short(step.output)
        );
        write!(svg, "<g><title>{title}</title>").ok();
        for (class, tokens) in [
            ("cached", step.cached),
            ("input", step.input),
            ("output", step.output),
        ] {
            let tall = height * real(tokens) / real(top);
            y -= tall;
            if tall > 0.0 {
                write!(
                    svg,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{tall:.1}\"/>"
                )
                .ok();
            }
        }
        svg.push_str("</g>");
    }
    svg.push_str(&cost_line(steps, per_bar, width, height));
    let last = format!(
        "{} step{}",
        steps.len(),
        if steps.len() == 1 { "" } else { "s" }
    );
    write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.0}\">tokens per step</text>",
        HEIGHT - 5.0
    )
    .ok();
    write!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{last}</text></svg>",
        WIDTH - RIGHT,
        HEIGHT - 5.0
    )
    .ok();
    svg
}

fn cost_line(steps: &[UsageStep], per_bar: usize, width: f64, height: f64) -> String {
    let total: f64 = steps.iter().filter_map(|step| step.cost).sum();
    if total <= 0.0 {
        return String::new();
    }
    let mut points = String::new();
    let mut sum = 0.0;
    for (n, step) in steps.iter().enumerate() {
        sum += step.cost.unwrap_or(0.0);
        if (n + 1) % per_bar != 0 && n + 1 != steps.len() {
            continue;
        }
        let x = LEFT + width * (real(n) + 0.5) / real(steps.len());
        write!(points, "{x:.1},{:.1} ", TOP + height * (1.0 - sum / total)).ok();
    }
    let x = WIDTH - RIGHT + 6.0;
    let y = TOP + 4.0;
    format!(
        "<polyline class=\"cost\" points=\"{}\"/><text class=\"cost\" x=\"{x:.0}\" y=\"{y:.0}\">{}</text>",
        points.trim(),
        money(total)
    )
}

/// Returns the next round number for the end of a scale.
fn round(most: u64) -> u64 {
    let mut unit = 1;
    loop {
        for step in [4, 8, 12, 20, 40] {
            if step * unit >= most {
                return step * unit;
            }
        }
        unit *= 10;
    }
}

/// Formats a count: 1234 as 1.2k.
pub fn short(n: u64) -> String {
    let (value, unit) = match n {
        0..1_000 => return n.to_string(),
        1_000..1_000_000 => (real(n) / 1e3, "k"),
        _ => (real(n) / 1e6, "M"),
    };
    let text = if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    format!("{}{unit}", text.trim_end_matches(".0"))
}

pub fn money(dollars: f64) -> String {
    if dollars < 0.1 {
        format!("${dollars:.4}")
    } else {
        format!("${dollars:.2}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "a drawing is not that exact")]
fn real(n: impl TryInto<u64>) -> f64 {
    n.try_into().unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_amounts_are_short() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (1_234, "1.2k"),
            (45_600, "46k"),
            (2_000_000, "2M"),
        ] {
            assert_eq!(short(n), text);
        }
        assert_eq!(
            (money(0.01234), money(1.5)),
            ("$0.0123".into(), "$1.50".into())
        );
    }

    #[test]
    fn chart_is_empty_without_tokens_and_bounded_with_many_steps() {
        assert_eq!(chart(&[UsageStep::default()]), "");
        let step = UsageStep {
            input: 10,
            cached: 5_000,
            output: 300,
            cost: Some(0.01),
        };
        assert_eq!(chart(&[step; 2]).matches("<rect").count(), 6);
        assert!(chart(&vec![step; 100_000]).matches("<g>").count() <= MAX_BARS);
    }
}
