//! Payloads that Temporal's client returns as they are stored: those of histories, and of failed updates.

use tamma_flow::failure_message;
use temporalio_client::NamespacedClient as _;
use temporalio_common::data_converters::SerializationContextData;
use temporalio_common::payload_visitor::{PayloadVisitable, decode_payloads};
use temporalio_common::protos::temporal::api::failure::v1::Failure;

use super::{App, Error};

impl App {
    /// Opens all sealed payloads of a message, such as an event of a history.
    pub(super) async fn open_payloads<M: PayloadVisitable>(
        &self,
        mut message: M,
    ) -> Result<M, Error> {
        let codec = self.temporal.data_converter().codec();
        decode_payloads(&mut message, codec, &SerializationContextData::None)
            .await
            .map_err(|error| Error::Internal(error.into()))?;
        Ok(message)
    }

    /// Returns the refusal of a workflow, which is the failure of an update.
    pub(super) async fn refused_update(&self, failure: Failure) -> Error {
        match self.open_payloads(failure).await {
            Ok(failure) => Error::Refused(failure_message(&failure)),
            Err(error) => error,
        }
    }
}
