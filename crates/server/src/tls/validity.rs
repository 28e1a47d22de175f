//! Time for which a certificate is valid.

use std::time::Duration;

use chrono::NaiveDateTime;
use tamma_core::task_loop::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Tag of the version, which old certificates lack.
const VERSION: u8 = 0xa0;

/// Tag of a time with two digits for the year.
const UTC_TIME: u8 = 0x17;

/// Tag of a time with four digits for the year.
const GENERALIZED_TIME: u8 = 0x18;

/// Period in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CertificateValidity {
    /// Start of the period.
    pub(super) start: Timestamp,
    /// End of the period.
    pub(super) end: Timestamp,
}

impl CertificateValidity {
    /// Reads the period of the first certificate in a PEM file; `None` if there is none.
    pub(super) fn of_pem(pem: &[u8]) -> Option<Self> {
        Self::of_der(&CertificateDer::from_pem_slice(pem).ok()?)
    }

    /// Reads the period of a certificate (RFC 5280); `None` if it is not one.
    pub(super) fn of_der(der: &[u8]) -> Option<Self> {
        let (_, certificate, _) = read_element(der)?;
        let (_, mut fields, _) = read_element(certificate)?;
        let (tag, _, rest) = read_element(fields)?;
        if tag == VERSION {
            fields = rest;
        }
        // Serial number, signature algorithm and issuer.
        for _ in 0..3 {
            (_, _, fields) = read_element(fields)?;
        }
        let (_, period, _) = read_element(fields)?;
        let (start_tag, start, rest) = read_element(period)?;
        let (end_tag, end, _) = read_element(rest)?;
        Some(Self { start: read_time(start_tag, start)?, end: read_time(end_tag, end)? })
    }

    /// Returns the time until two thirds of the period have passed; zero if they have.
    pub(super) fn until_renewal(&self, now: Timestamp) -> Duration {
        let renewal = self.start + (self.end - self.start) * 2 / 3;
        (renewal - now).to_std().unwrap_or(Duration::ZERO)
    }
}

/// Returns the tag and the content of the first element, and the bytes after it.
fn read_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        let digits = digits.iter().map(|digit| usize::from(*digit));
        (digits.fold(0, |length, digit| length * 256 + digit), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn read_time(tag: u8, content: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        UTC_TIME if text < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = NaiveDateTime::parse_from_str(&text, "%Y%m%d%H%M%SZ").ok()?;
    Some(time.and_utc())
}

#[cfg(test)]
mod tests {
    use chrono::{TimeDelta, TimeZone as _, Utc};
    use tamma_testkit::certificates::{AUTHORITY, FIRST};

    use super::*;

    #[test]
    fn the_period_is_that_of_the_first_certificate() {
        let validity = CertificateValidity::of_pem(FIRST.0.as_bytes()).expect("certificate");
        let start = Utc.with_ymd_and_hms(2026, 11, 17, 22, 42, 10).single().expect("time");
        let end = Utc.with_ymd_and_hms(2126, 10, 24, 22, 42, 10).single().expect("time");
        assert_eq!(validity, CertificateValidity { start, end });
        let (key, chain) = (FIRST.1, format!("{}{AUTHORITY}", FIRST.0));
        let with_key = CertificateValidity::of_pem(format!("{key}{chain}").as_bytes());
        assert_eq!(with_key, Some(validity));
    }

    #[test]
    fn other_bytes_have_no_period() {
        let der = CertificateDer::from_pem_slice(FIRST.0.as_bytes()).expect("certificate");
        for end in 0..der.len() {
            assert_eq!(CertificateValidity::of_der(&der[..end]), None, "{end}");
        }
        for bytes in [&b""[..], b"0", b"0\x80", b"0\xff\xff", b"-----BEGIN"] {
            assert_eq!(CertificateValidity::of_der(bytes), None, "{bytes:?}");
            assert_eq!(CertificateValidity::of_pem(bytes), None, "{bytes:?}");
        }
        assert_eq!(
            read_time(UTC_TIME, b"491231235959Z").map(|it| it.timestamp()),
            Some(2_524_607_999)
        );
        assert_eq!(
            read_time(UTC_TIME, b"500101000000Z").map(|it| it.timestamp()),
            Some(-631_152_000)
        );
        assert_eq!(read_time(GENERALIZED_TIME, b"20500101000000"), None);
    }

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_its_time_have_passed() {
        let start = Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).single().expect("time");
        let validity = CertificateValidity { start, end: start + TimeDelta::days(90) };
        let days = |days: u64| Duration::from_hours(24 * days);
        assert_eq!(validity.until_renewal(start), days(60));
        assert_eq!(validity.until_renewal(start + TimeDelta::days(59)), days(1));
        assert_eq!(validity.until_renewal(start + TimeDelta::days(60)), Duration::ZERO);
        assert_eq!(validity.until_renewal(start + TimeDelta::days(100)), Duration::ZERO);
    }
}
