//! Codec of Temporal payloads.
//!
//! A sealed payload has the encoding `binary/encrypted`, as in Temporal's examples, and names its key.
//! Its data is a nonce, and the compressed payload with an authentication tag.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use futures_util::future::BoxFuture;
use prost::Message as _;
use temporalio_common::data_converters::{
    DataConverter, DefaultFailureConverter, FailureConverter, PayloadCodec, PayloadConversionError,
    PayloadConverter, SerializationContextData,
};
use temporalio_common::error::{IncomingError, OutgoingError};
use temporalio_common::protos::temporal::api::common::v1::Payload;
use temporalio_common::protos::temporal::api::failure::v1::Failure;

use crate::key_file::Keys;
use crate::key_ring::KeyError;

/// Metadata key of a payload's encoding.
const ENCODING: &str = "encoding";

/// Encoding of sealed payloads.
const SEALED: &[u8] = b"binary/encrypted";

/// Metadata key of the ID of the key.
const KEY_ID: &str = "encryption-key-id";

/// Metadata key of the cipher.
const CIPHER: &str = "encryption-cipher";

/// Cipher, after compression.
const DEFLATE_AES_256_GCM: &[u8] = b"deflate, AES-256-GCM";

/// Purpose of the sealed bytes, so that they cannot be used in another place.
const CONTEXT: &str = "tamma: payload in Temporal, version 1";

/// Payloads up to this number of bytes are stored as they are: they would hardly get smaller, and setting up
/// a compressor takes 20 µs.
const MAX_STORED: u16 = 256;

/// Returns the data converter of a client that seals payloads and the messages of failures.
pub fn data_converter(keys: Keys) -> DataConverter {
    DataConverter::new(
        PayloadConverter::default(),
        SealedFailures(keys.clone()),
        SealedPayloads(keys),
    )
}

fn is_sealed(payload: &Payload) -> bool {
    payload.metadata.get(ENCODING).is_some_and(|encoding| encoding == SEALED)
}

/// Codec that seals with the active key, and opens with any key. Everything else passes through, such as
/// histories that were written before there was a key.
struct SealedPayloads(Keys);

impl PayloadCodec for SealedPayloads {
    fn encode(
        &self,
        _: &SerializationContextData,
        payloads: Vec<Payload>,
    ) -> BoxFuture<'static, Result<Vec<Payload>, PayloadConversionError>> {
        let sealed = payloads.into_iter().map(|payload| seal(&self.0, payload));
        let sealed: Result<Vec<_>, _> = sealed.collect();
        Box::pin(std::future::ready(sealed))
    }

    fn decode(
        &self,
        _: &SerializationContextData,
        payloads: Vec<Payload>,
    ) -> BoxFuture<'static, Result<Vec<Payload>, PayloadConversionError>> {
        let opened = payloads.into_iter().map(|payload| open(&self.0, payload));
        let opened: Result<Vec<_>, _> = opened.collect();
        Box::pin(std::future::ready(opened))
    }
}

/// Converter of failures that moves messages and stack traces into a payload, if payloads are sealed.
struct SealedFailures(Keys);

impl FailureConverter for SealedFailures {
    fn to_failure(
        &self,
        error: OutgoingError,
        payload_converter: &PayloadConverter,
        context: &SerializationContextData,
    ) -> Failure {
        // An older version reads the message itself, until the operator activates a key.
        let converter = DefaultFailureConverter::new(self.0.current().is_active());
        converter.to_failure(error, payload_converter, context)
    }

    fn to_error(
        &self,
        failure: Failure,
        payload_converter: &PayloadConverter,
        context: &SerializationContextData,
    ) -> Result<IncomingError, PayloadConversionError> {
        DefaultFailureConverter::default().to_error(failure, payload_converter, context)
    }
}

fn seal(keys: &Keys, payload: Payload) -> Result<Payload, PayloadConversionError> {
    let ring = keys.current();
    if !ring.is_active() {
        return Ok(payload);
    }
    let compressed = compress(&payload.encode_to_vec()).map_err(failed)?;
    let Some((id, data)) = ring.seal(CONTEXT, compressed).map_err(failed)? else {
        return Ok(payload);
    };
    let metadata = [
        (ENCODING.to_owned(), SEALED.to_vec()),
        (CIPHER.to_owned(), DEFLATE_AES_256_GCM.to_vec()),
        (KEY_ID.to_owned(), id.as_bytes().to_vec()),
    ];
    Ok(Payload { metadata: metadata.into(), data, ..Payload::default() })
}

/// Returns a DEFLATE stream (RFC 1951) of these bytes.
fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    if let Some(length) = u16::try_from(bytes.len()).ok().filter(|length| *length <= MAX_STORED) {
        // One block, the last, that is stored: its length, the complement of its length, and the bytes.
        let mut block = vec![1];
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(bytes);
        return Ok(block);
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn open(keys: &Keys, payload: Payload) -> Result<Payload, PayloadConversionError> {
    if !is_sealed(&payload) {
        return Ok(payload);
    }
    let id = payload.metadata.get(KEY_ID).map(|id| String::from_utf8_lossy(id).into_owned());
    let id = id.unwrap_or_default();
    let compressed = keys.ring_with(&id).open(&id, CONTEXT, &payload.data).map_err(failed)?;
    let mut bytes = Vec::new();
    DeflateDecoder::new(compressed.as_slice()).read_to_end(&mut bytes).map_err(failed)?;
    Payload::decode(bytes.as_slice()).map_err(|_| failed(KeyError::Damaged(id)))
}

fn failed(
    error: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> PayloadConversionError {
    PayloadConversionError::EncodingError(error.into())
}

#[cfg(test)]
mod tests {
    use temporalio_common::error::{ApplicationFailure, OutgoingActivityError};

    use super::*;
    use crate::key_ring::KeyRing;

    const NOWHERE: SerializationContextData = SerializationContextData::None;

    fn ring() -> KeyRing {
        let mut ring = KeyRing::default();
        let id = ring.add("2026-11-17T12:00:00Z".parse().expect("a time")).expect("added");
        ring.activate(&id).expect("active");
        ring
    }

    fn contains(payload: &Payload, text: &str) -> bool {
        payload.encode_to_vec().windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[tokio::test]
    async fn a_sealed_payload_shows_nothing_and_opens_again() {
        let converter = data_converter(Keys::fixed(ring()));
        let value = "the plan of a task".to_owned();
        let sealed = converter.to_payload(&NOWHERE, &value).await.expect("sealed");
        assert!(is_sealed(&sealed));
        assert!(!contains(&sealed, "plan") && !contains(&sealed, "json"));
        let opened: String = converter.from_payload(&NOWHERE, sealed).await.expect("opened");
        assert_eq!(opened, value);
    }

    #[test]
    fn payloads_of_all_sizes_are_compressed_and_opened() {
        let random = |place: usize| (place.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0];
        for length in (0..600).chain([65_535, 65_536, 1_000_000]) {
            for bytes in [vec![7; length], (0..length).map(random).collect()] {
                let compressed = compress(&bytes).expect("compressed");
                let mut opened = Vec::new();
                let read = DeflateDecoder::new(compressed.as_slice()).read_to_end(&mut opened);
                assert_eq!((read.expect("valid"), opened), (length, bytes));
            }
        }
        assert_eq!(compress(&[7; 256]).expect("compressed").len(), 5 + 256, "stored as it is");
        assert!(compress(&[7; 257]).expect("compressed").len() < 30);
    }

    #[tokio::test]
    async fn payloads_of_histories_without_keys_pass_through() {
        let plain = DataConverter::default();
        let payload = plain.to_payload(&NOWHERE, &1_u32).await.expect("plain");
        let converter = data_converter(Keys::fixed(ring()));
        let value: u32 = converter.from_payload(&NOWHERE, payload.clone()).await.expect("read");
        assert_eq!(value, 1);
        let without_keys = data_converter(Keys::fixed(KeyRing::default()));
        let written = without_keys.to_payload(&NOWHERE, &1_u32).await.expect("plain");
        assert_eq!(written, payload, "without an active key, everybody can read it");
    }

    #[tokio::test]
    async fn a_missing_key_is_named_with_the_way_to_add_it() {
        let sealed = data_converter(Keys::fixed(ring())).to_payload(&NOWHERE, &1_u32).await;
        let sealed = sealed.expect("sealed");
        let id = String::from_utf8(sealed.metadata[KEY_ID].clone()).expect("an ID");
        let others = data_converter(Keys::fixed(ring()));
        let error = others.from_payload::<u32>(&NOWHERE, sealed).await.expect_err("no key");
        let error = error.to_string();
        assert!(error.contains(&id) && error.contains("key file"), "{error}");
    }

    #[tokio::test]
    async fn messages_of_failures_are_sealed_too() {
        let converter = data_converter(Keys::fixed(ring()));
        let error = ApplicationFailure::new("a canary in a message");
        let error = OutgoingError::Activity(OutgoingActivityError::Application(Box::new(error)));
        let mut failure = converter.to_failure(&NOWHERE, error);
        let attributes = failure.encoded_attributes.take().expect("in a payload");
        assert!(!failure.message.contains("canary"));
        let codec = converter.codec();
        let sealed = codec.encode(&NOWHERE, vec![attributes]).await.expect("sealed").remove(0);
        assert!(!contains(&sealed, "canary"));
        failure.encoded_attributes =
            Some(codec.decode(&NOWHERE, vec![sealed]).await.expect("opened").remove(0));
        let decoder = converter.failure_converter();
        let error = decoder.to_error(failure, converter.payload_converter(), &NOWHERE);
        assert_eq!(error.expect("decoded").failure().message, "a canary in a message");
    }
}
