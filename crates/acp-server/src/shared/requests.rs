//! Request handlers, and conversions for them, that are the same in both protocol versions except
//! for the types.

/// Defines the handlers with the types of one protocol version.
macro_rules! requests {
    ($version:ident) => {
        use std::sync::Arc;

        use protocol::acp::{$version as acp, Method};
        use protocol::rpc;
        use protocol::table::{Reply, RequestContext, Table};
        use serde_json::json;

        use crate::error::RequestError;
        use crate::account_reports::Account;
        use crate::login;
        use crate::meta::{self, CHANGED, SUMMARY};
        use crate::providers::{self, EndpointRequest};
        use crate::server::Server;
        use crate::sessions::{self, ArchiveChange, SessionStatus, SystemPromptAddition};
        use ::providers::custom_endpoint::ApiType;
        use ::providers::editor_endpoints::ConfigurableProvider;
        use base::id::SessionId;
        use store::{DiffStats, Record};
        use transcript::Usage;

        /// Adds the handlers of this file to a version's routing table.
        pub(crate) fn register(table: Table<Server>) -> Table<Server> {
            table
                .request(auth_status)
                .request(list_providers)
                .request(set_provider)
                .request(disable_provider)
                .request(close)
                .request(delete)
                .request(set_title)
                .request(status)
                .request(archive)
                .request(unarchive)
                .notification(mcp_message)
        }

        /// Returns the capabilities of sessions that both versions have.
        pub(crate) fn session_capabilities() -> acp::SessionCapabilities {
            acp::SessionCapabilities::new()
                .delete(acp::SessionDeleteCapabilities::new())
                .fork(acp::SessionForkCapabilities::new())
                .title(acp::SessionTitleCapabilities::new())
                .status(acp::SessionStatusCapabilities::new())
                .archive(acp::SessionArchiveCapabilities::new())
                .system_prompt(acp::SessionSystemPromptCapabilities::new())
                .additional_directories(acp::SessionAdditionalDirectoriesCapabilities::new())
        }

        /// Sets the title that the user chose; generated titles do not replace it
        /// (`session/set_title`).
        pub(crate) fn set_title(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::SetSessionTitleRequest,
        ) -> Reply<acp::SetSessionTitleResponse> {
            let title = sessions::set_title(server, &request.session_id.0, &request.title);
            Reply::later(async move { Ok(acp::SetSessionTitleResponse::new(title.await?)) })
        }

        /// Reports whether a session is open or only stored (`session/status`).
        pub(crate) fn status(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::SessionStatusRequest,
        ) -> Reply<acp::SessionStatusResponse> {
            let status = sessions::status(server.clone(), SessionId::new(request.session_id.0));
            Reply::later(async move {
                Ok(acp::SessionStatusResponse::new(match status.await? {
                    SessionStatus::Open => acp::SessionStatus::Open,
                    SessionStatus::Saved => acp::SessionStatus::Saved,
                }))
            })
        }

        /// Decodes the sessions to list: the archived ones (`Some(true)`), the others (`Some(false)`),
        /// or both (`None`).
        pub(crate) fn archive_filter(
            archived: Option<&acp::SessionArchiveFilter>,
        ) -> Result<Option<bool>, RequestError> {
            match archived {
                None | Some(acp::SessionArchiveFilter::Exclude) => Ok(Some(false)),
                Some(acp::SessionArchiveFilter::Include) => Ok(None),
                Some(acp::SessionArchiveFilter::Only) => Ok(Some(true)),
                Some(_) => Err(RequestError::Invalid(
                    "archived must be exclude, include or only".into(),
                )),
            }
        }

        /// Returns the entry of a session in a list.
        pub(crate) fn session_info(record: &Record) -> acp::SessionInfo {
            let changed = record.diff_stats.map(|changed| {
                let DiffStats {
                    files,
                    additions,
                    deletions,
                } = changed;
                json!({ "files": files, "additions": additions, "deletions": deletions })
            });
            let summary = record.description().map(Into::into);
            acp::SessionInfo::new(record.id.share(), record.cwd.clone())
                .additional_directories(record.additional_directories.clone())
                .title(record.title.clone())
                .updated_at(record.updated.iso())
                .archived(record.archived.then_some(true))
                .meta(meta::with_members([(CHANGED, changed), (SUMMARY, summary)]))
        }

        /// Closes a session (`session/close`).
        pub(crate) fn close(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::CloseSessionRequest,
        ) -> Reply<acp::CloseSessionResponse> {
            let closed = sessions::close(server, &request.session_id.0);
            Reply::later(async move {
                Ok(closed
                    .await
                    .map(|()| acp::CloseSessionResponse::default())?)
            })
        }

        /// Deletes a session (`session/delete`).
        pub(crate) fn delete(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::DeleteSessionRequest,
        ) -> Reply<acp::DeleteSessionResponse> {
            let deleted = sessions::delete(server, &request.session_id.0);
            Reply::later(async move {
                Ok(deleted
                    .await
                    .map(|()| acp::DeleteSessionResponse::default())?)
            })
        }

        /// Archives a session (`session/archive`).
        pub(crate) fn archive(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::ArchiveSessionRequest,
        ) -> Reply<acp::ArchiveSessionResponse> {
            let done = sessions::change_archived(server, &request.session_id.0, ArchiveChange::Archive);
            Reply::later(async move {
                Ok(done
                    .await
                    .map(|()| acp::ArchiveSessionResponse::default())?)
            })
        }

        /// Unarchives a session (`session/unarchive`).
        pub(crate) fn unarchive(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::UnarchiveSessionRequest,
        ) -> Reply<acp::UnarchiveSessionResponse> {
            let done = sessions::change_archived(server, &request.session_id.0, ArchiveChange::Unarchive);
            Reply::later(async move {
                Ok(done
                    .await
                    .map(|()| acp::UnarchiveSessionResponse::default())?)
            })
        }

        /// Handles a notification from an MCP server that runs in the client (`mcp/message`).
        pub(crate) fn mcp_message(server: &Arc<Server>, notification: acp::MessageMcpNotification) {
            let acp::MessageMcpNotification {
                server_id,
                request_id,
                method,
                params,
                ..
            } = notification;
            server
                .editor_servers
                .notify(&server_id.0, &request_id.0, &method, params);
        }

        /// Encodes the tokens of a turn; `None` if no model was asked, or none reported its usage.
        pub(crate) fn encode_usage(used: &Usage) -> Option<acp::Usage> {
            let unless_zero = |tokens: u64| (tokens > 0).then_some(tokens);
            let total = unless_zero(used.context())?;
            Some(
                acp::Usage::new(total, used.input, used.output)
                    .thought_tokens(unless_zero(used.reasoning))
                    .cached_read_tokens(unless_zero(used.cache_read))
                    .cached_write_tokens(unless_zero(used.cache_write)),
            )
        }

        /// Converts the client's system prompt. Only a non-empty addition of text is supported.
        pub(crate) fn decode_system_prompt(prompt: acp::SystemPrompt) -> SystemPromptAddition {
            let text = |block: acp::ContentBlock| match block {
                acp::ContentBlock::Text(text) => Some(text.text),
                _ => None,
            };
            let blocks: Option<Vec<String>> = prompt.content.into_iter().map(text).collect();
            match (prompt.mode, blocks) {
                (acp::SystemPromptMode::Append, Some(blocks)) if !blocks.is_empty() => {
                    SystemPromptAddition::Text(blocks.join("\n\n"))
                }
                _ => SystemPromptAddition::Unsupported,
            }
        }

        /// Lists the stored keys and logins (`auth/status`).
        pub(crate) fn auth_status(
            server: &Arc<Server>,
            cx: RequestContext,
            _: acp::AuthStatusRequest,
        ) -> Reply<acp::AuthStatusResponse> {
            let server = server.clone();
            Reply::later(async move {
                let response = login::account_response(&server).await;
                let (state, accounts) = auth_state(response.accounts.clone());
                cx.after(login::resend_if_overtaken(server, response));
                Ok(acp::AuthStatusResponse::new(state).accounts(accounts))
            })
        }

        fn auth_state(accounts: Vec<Account>) -> (acp::AuthState, Vec<acp::AuthAccount>) {
            let account = |Account { label, name }| acp::AuthAccount::new(label).name(name);
            // A login is never required: the offline model and local servers need none.
            let state = if accounts.is_empty() {
                acp::AuthState::NotRequired
            } else {
                acp::AuthState::Authenticated
            };
            (state, accounts.into_iter().map(account).collect())
        }

        /// Encodes an `auth/status_update` notification, as one line without its line end.
        pub(crate) fn auth_status_update(accounts: Vec<Account>) -> Vec<u8> {
            let (state, accounts) = auth_state(accounts);
            let notification = acp::AuthStatusUpdateNotification::new(state).accounts(accounts);
            rpc::notification_line(
                <acp::AuthStatusUpdateNotification as Method>::NAME,
                &notification,
            )
        }

        /// Lists the providers whose endpoint the client can set (`providers/list`).
        pub(crate) fn list_providers(
            server: &Arc<Server>,
            _: RequestContext,
            _: acp::ListProvidersRequest,
        ) -> Reply<acp::ListProvidersResponse> {
            let listed = providers::list(server);
            Reply::later(async move {
                let listed = listed.await?;
                Ok(acp::ListProvidersResponse::new(
                    listed.into_iter().map(provider_info).collect(),
                ))
            })
        }

        fn provider_info(provider: ConfigurableProvider) -> acp::ProviderInfo {
            let supported = provider.supported.into_iter().map(llm_protocol).collect();
            let current = provider
                .current
                .map(|(api, address)| acp::ProviderCurrentConfig::new(llm_protocol(api), address));
            acp::ProviderInfo::new(provider.id, supported, false, current)
        }

        fn llm_protocol(api: ApiType) -> acp::LlmProtocol {
            match api {
                ApiType::Anthropic => acp::LlmProtocol::Anthropic,
                ApiType::OpenAi => acp::LlmProtocol::OpenAi,
                ApiType::Azure => acp::LlmProtocol::Azure,
                ApiType::Vertex => acp::LlmProtocol::Vertex,
                ApiType::Bedrock => acp::LlmProtocol::Bedrock,
                ApiType::Gemini => acp::LlmProtocol::Other(api.name().to_owned()),
            }
        }

        /// Sets the endpoint of a provider (`providers/set`).
        pub(crate) fn set_provider(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::SetProviderRequest,
        ) -> Reply<acp::SetProviderResponse> {
            let api = match request.api_type {
                acp::LlmProtocol::Anthropic => ApiType::Anthropic.name().to_owned(),
                acp::LlmProtocol::OpenAi => ApiType::OpenAi.name().to_owned(),
                acp::LlmProtocol::Azure => ApiType::Azure.name().to_owned(),
                acp::LlmProtocol::Vertex => ApiType::Vertex.name().to_owned(),
                acp::LlmProtocol::Bedrock => ApiType::Bedrock.name().to_owned(),
                acp::LlmProtocol::Other(name) => name,
                // Refused as unknown by `providers::set`.
                _ => String::new(),
            };
            let set = providers::set(
                server,
                EndpointRequest {
                    provider: request.provider_id.0.to_string(),
                    api,
                    base_url: request.base_url,
                    headers: request.headers.into_iter().collect(),
                },
            );
            Reply::later(
                async move { Ok(set.await.map(|()| acp::SetProviderResponse::default())?) },
            )
        }

        /// Removes the endpoint that a client has set (`providers/disable`).
        pub(crate) fn disable_provider(
            server: &Arc<Server>,
            _: RequestContext,
            request: acp::DisableProviderRequest,
        ) -> Reply<acp::DisableProviderResponse> {
            let disabled = providers::disable(server, request.provider_id.0.to_string());
            Reply::later(async move {
                Ok(disabled
                    .await
                    .map(|()| acp::DisableProviderResponse::default())?)
            })
        }
    };
}

pub(crate) use requests;
