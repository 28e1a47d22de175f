//! Monitoring endpoint: probes and metrics, without a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tamma_server::{MonitoringServer, PollerProbe};
use tokio_util::sync::CancellationToken;

use crate::test_server::{TestServer, fresh_database, temporal_client};

/// Time that Prometheus waits for an answer by default.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn probes_and_metrics_need_no_token_and_name_no_task() {
    let server = TestServer::new().await;
    let (stop, done) = (CancellationToken::new(), CancellationToken::new());
    let backends = (server.store.clone(), temporal_client().await);
    let address = "127.0.0.1:0".parse().expect("address");
    let monitoring =
        MonitoringServer::bind(address, backends, true, None, stop.clone()).await.expect("bound");
    let url = format!("http://{}", monitoring.address());
    let running = tokio::spawn(monitoring.run(done.clone()));
    let http = reqwest::Client::builder().no_proxy().build().expect("client");
    let get = async |path: &str| {
        let response = http.get(format!("{url}{path}")).send().await.expect("response");
        (response.status().as_u16(), response.text().await.expect("text"))
    };
    assert_eq!(get("/livez").await, (200, "live\n".to_owned()));
    let (status, text) = get("/readyz").await;
    assert!(status == 200 && text.contains(r#""ready":true"#), "{status} {text}");

    assert_eq!(server.get("/health").await.0, 200);
    let missing = "/tasks/0192a000-0000-7000-8000-0000000000ff/diff";
    assert_eq!(server.get(missing).await.0, 404);
    let (status, text) = get("/metrics").await;
    assert_eq!(status, 200);
    for expected in [
        "# TYPE tamma_http_requests_total counter\n",
        r#"tamma_http_requests_total{method="GET",route="/api/v1/health",status="2xx"} "#,
        r#"tamma_http_requests_total{method="GET",route="/api/v1/tasks/{id}/diff",status="4xx"} "#,
        r#"tamma_http_request_duration_seconds_bucket{kind="access",le="+Inf"} "#,
        "tamma_installation_up 1\n",
        "tamma_installation_workers 0\n",
        "tamma_installation_audit_pending_entries ",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(!text.contains("0192a000"), "{text}");

    stop.cancel();
    let (status, text) = get("/readyz").await;
    assert!(status == 503 && text.contains(r#""stopping":true"#), "{status} {text}");
    assert_eq!(get("/livez").await.0, 200, "it is still alive");
    done.cancel();
    running.await.expect("no panic").expect("clean exit");
    server.end().await;
}

#[tokio::test]
async fn without_the_database_metrics_are_still_served_and_say_so() {
    let (_database, store) = fresh_database().await;
    let (stop, done) = (CancellationToken::new(), CancellationToken::new());
    let backends = (store.clone(), temporal_client().await);
    let address = "127.0.0.1:0".parse().expect("address");
    let monitoring =
        MonitoringServer::bind(address, backends, true, None, stop).await.expect("bound");
    let url = format!("http://{}", monitoring.address());
    let running = tokio::spawn(monitoring.run(done.clone()));
    store.close().await;
    let http = reqwest::Client::builder().no_proxy().timeout(SCRAPE_TIMEOUT).build();
    let http = http.expect("client");
    let metrics = http.get(format!("{url}/metrics")).send().await.expect("in time");
    assert_eq!(metrics.status(), 200);
    let text = metrics.text().await.expect("text");
    assert!(text.contains("tamma_installation_up 0\n"), "{text}");
    let ready = http.get(format!("{url}/readyz")).send().await.expect("in time");
    assert_eq!(ready.status(), 503);
    let text = ready.text().await.expect("text");
    assert!(text.contains(r#""database":false"#), "{text}");
    done.cancel();
    running.await.expect("no panic").expect("clean exit");
}

#[tokio::test]
async fn a_worker_that_does_not_poll_is_not_ready() {
    let (_database, store) = fresh_database().await;
    let (stop, done) = (CancellationToken::new(), CancellationToken::new());
    let backends = (store, temporal_client().await);
    let address = "127.0.0.1:0".parse().expect("address");
    let is_polling = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&is_polling);
    let pollers: PollerProbe = Arc::new(move || shared.load(Ordering::Relaxed));
    let monitoring = MonitoringServer::bind(address, backends, false, Some(pollers), stop).await;
    let monitoring = monitoring.expect("bound");
    let url = format!("http://{}/readyz", monitoring.address());
    let running = tokio::spawn(monitoring.run(done.clone()));
    let http = reqwest::Client::builder().no_proxy().build().expect("client");
    for polling in [false, true] {
        is_polling.store(polling, Ordering::Relaxed);
        let ready = http.get(&url).send().await.expect("response");
        assert_eq!(ready.status(), if polling { 200 } else { 503 });
        let text = ready.text().await.expect("text");
        assert!(text.contains(&format!(r#""polling":{polling}"#)), "{text}");
    }
    done.cancel();
    running.await.expect("no panic").expect("clean exit");
}
