//! Organisations: what their people see, and what their administrators can do.

use reqwest::Method;
use serde_json::{Value, json};
use tamma_flow::NAMESPACE;
use tamma_server::{ApiServer, ServerConfig};

use crate::browser::StoredTask;
use crate::test_server::{TestServer, config, fresh_database, read, temporal_client};

/// Server with the organisations `acme` and `globex`, which own one project each.
struct Tenants {
    server: TestServer,
}

impl Tenants {
    async fn new() -> Self {
        let server = TestServer::new().await;
        let this = Self { server };
        for (organisation, project) in [("acme", "rockets"), ("globex", "lasers")] {
            let new = json!({ "name": organisation, "namespace": NAMESPACE });
            this.operate("/organisations", new).await;
            let repository = format!("/{project}");
            let project_id = json!({ "name": project, "repository": repository });
            this.operate("/projects", project_id).await;
            let transfer = json!({ "project": project, "organisation": organisation });
            this.operate("/organisations/projects", transfer).await;
        }
        this
    }

    async fn operate(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.server.post(path, &body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    async fn person(&self, name: &str, organisation: &str, role: &str) -> String {
        let grant = json!({ "organisation": organisation, "person": name, "role": role });
        self.operate("/organisations/access", grant).await;
        self.server.token_of(name).await
    }

    async fn get(&self, token: &str, path: &str) -> (u16, Value) {
        let request = self.server.request(Method::GET, path).bearer_auth(token);
        read(request.send().await.expect("response")).await
    }

    async fn post(&self, token: &str, path: &str, body: Value) -> (u16, Value) {
        let request = self.server.request(Method::POST, path).bearer_auth(token).json(&body);
        read(request.send().await.expect("response")).await
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().expect("list");
    items.iter().map(|it| it["name"].as_str().expect("name")).collect()
}

#[tokio::test]
async fn a_role_in_an_organisation_applies_to_its_projects_and_ends_there() {
    let tenants = Tenants::new().await;
    let wile = tenants.person("Wile", "acme", "member").await;
    let hank = tenants.person("Hank", "globex", "approver").await;
    // Everybody in globex, which Wile is not.
    let everybody = json!({ "project": "lasers", "role": "approver" });
    tenants.operate("/access", everybody).await;
    // A new token comes with the roles that count for its name.
    let (status, issued) = tenants.server.post("/people", &json!({ "name": "Op" })).await;
    assert_eq!((status, &issued["roles"]), (200, &json!({})), "nobody in globex");
    let viewer = json!({ "organisation": "globex", "person": "Viv", "role": "viewer" });
    tenants.operate("/organisations/access", viewer).await;
    let (status, issued) = tenants.server.post("/people", &json!({ "name": "Viv" })).await;
    assert_eq!((status, &issued["roles"]), (200, &json!({ "lasers": "approver" })));
    let project = tenants.server.get("/projects").await.1;
    let rockets = project["projects"].as_array().expect("projects");
    let rockets = rockets.iter().find(|it| it["name"] == "rockets").expect("project");
    let rockets = rockets["id"].as_str().expect("ID").parse().expect("ID");
    let task = StoredTask::new(&tenants.server, rockets, json!({ "title": "Fly" })).await;
    let (of_wile, of_hank) =
        (tenants.get(&wile, "/projects").await.1, tenants.get(&hank, "/projects").await.1);
    assert_eq!(names(&of_wile["projects"]), ["rockets"]);
    assert_eq!(names(&of_hank["projects"]), ["lasers"]);
    let path = format!("/tasks/{}", task.id);
    assert_eq!(tenants.get(&wile, &path).await.0, 200);
    assert_eq!(tenants.get(&hank, &path).await.0, 404);
    assert_eq!(tenants.get(&hank, "/tasks").await.1["tasks"], json!([]));
    // The transfer of a project takes it away at once.
    let transfer = json!({ "project": "rockets", "organisation": "globex" });
    tenants.operate("/organisations/projects", transfer).await;
    assert_eq!(tenants.get(&wile, &path).await.0, 404);
    assert_eq!(tenants.get(&hank, &path).await.0, 200);
    tenants.server.end().await;
}

#[tokio::test]
async fn administrators_manage_access_in_their_organisation_only() {
    let tenants = Tenants::new().await;
    let road = tenants.person("Road", "acme", "administrator").await;
    let wile = tenants.person("Wile", "acme", "approver").await;
    let grant = |organisation: &str, role: &str| json!({ "organisation": organisation, "person": "Bugs", "role": role });
    let path = "/organisations/access";
    assert_eq!(tenants.post(&road, path, grant("acme", "viewer")).await.0, 200);
    assert_eq!(tenants.post(&road, path, grant("globex", "viewer")).await.0, 404, "not theirs");
    assert_eq!(tenants.post(&road, path, grant("acme", "operator")).await.0, 422);
    let (status, problem) = tenants.post(&wile, path, grant("acme", "viewer")).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:administrator")));
    // The list of organisations is for administrators, too: no hint sends anybody there.
    assert!(!problem["what_to_do"].to_string().contains("organisation list"), "{problem}");
    let in_project =
        |project: &str| json!({ "project": project, "person": "Bugs", "role": "member" });
    let (status, access) = tenants.post(&road, "/access", in_project("rockets")).await;
    assert_eq!(status, 200, "{access}");
    assert_eq!(tenants.post(&road, "/access", in_project("lasers")).await.0, 404);
    let (status, access) = tenants.get(&road, "/access").await;
    assert_eq!((status, access["projects"].as_array().map(Vec::len)), (200, Some(1)), "{access}");
    let (status, list) = tenants.get(&road, "/organisations").await;
    assert_eq!((status, names(&list["organisations"])), (200, vec!["acme"]));
    assert_eq!(list["organisations"][0]["roles"]["Bugs"], "viewer");
    let unknown = json!({ "name": "third", "repository": "/third", "organisation": "nobody" });
    assert_eq!(tenants.server.post("/projects", &unknown).await.0, 404, "and not registered");
    let third = json!({ "name": "third", "repository": "/third", "organisation": "acme" });
    tenants.operate("/projects", third).await;
    let list = tenants.get(&road, "/organisations").await.1;
    assert_eq!(list["organisations"][0]["projects"], json!(["rockets", "third"]));
    // Operating the installation stays with operators.
    for (path, body) in [
        ("/organisations", json!({ "name": "third" })),
        ("/organisations/projects", json!({ "project": "rockets", "organisation": "globex" })),
        ("/projects", json!({ "name": "fourth", "repository": "/fourth" })),
        ("/people", json!({ "name": "Max" })),
    ] {
        let (status, problem) = tenants.post(&road, path, body).await;
        assert_eq!((status, &problem["type"]), (403, &json!("tamma:operator")), "{path}");
    }
    // A role that is taken away ends at once.
    let revoke = json!({ "organisation": "acme", "person": "ROAD" });
    tenants.operate(path, revoke).await;
    assert_eq!(tenants.get(&road, "/organisations").await.0, 403);
    tenants.server.end().await;
}

#[tokio::test]
async fn knowledge_for_several_organisations_comes_from_operators() {
    let tenants = Tenants::new().await;
    let wile = tenants.person("Wile", "acme", "approver").await;
    let new = json!({
        "kind": "convention", "text": "Names are short.", "globs": ["src/**"], "organisation": true,
    });
    let (status, problem) = tenants.post(&wile, "/knowledge", new.clone()).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:operator")), "{problem}");
    assert!(tenants.server.post("/knowledge", &new).await.0 < 300);
    tenants.server.end().await;
}

const POLICIES: &str = r#"
@id("no-self-approval")
@reason("Somebody else approves what you added.")
forbid (principal, action == Action::"approve", resource)
when { resource has author && resource.author == principal.name };

@id("budgets-by-grace")
@reason("Only Grace raises budgets.")
forbid (principal, action in Action::"decide", resource)
when { context.raises_budget }
unless { principal == Person::"Grace" };
"#;

#[tokio::test]
async fn a_policy_refuses_with_its_reason_and_the_check_says_so_before() {
    let policies = [("team.cedar".to_owned(), POLICIES.to_owned())].into();
    let server = TestServer::with(ServerConfig { policies, ..config("127.0.0.1:0", None) }).await;
    let project = server.project("/nowhere").await;
    for name in ["Ada", "Grace"] {
        server.grant("greeter", name, "approver").await;
    }
    let ada = server.token_of("Ada").await;
    // Ada is its author.
    let mut task = StoredTask::new(&server, project, json!({ "title": "Greet" })).await;
    let plan = task.add_plan("Greet everybody", 3).await.plan.as_ref().expect("plan").hash;
    let check = async |person: &str, action: &str| {
        let path = format!("/access/check?person={person}&action={action}&task={}", task.id);
        let request = server.request(Method::GET, &path).header("Tamma-Person", "Olga");
        read(request.send().await.expect("response")).await.1
    };
    let checked = check("Ada", "approve").await;
    assert_eq!(checked["allowed"], false, "{checked}");
    assert!(checked.to_string().contains("The policy `no-self-approval` forbids it"), "{checked}");
    let action = json!({ "approve": { "plan": plan.to_string() } });
    let path = format!("/tasks/{}/actions", task.id);
    let request = server.request(Method::POST, &path).bearer_auth(&ada).json(&action);
    let (status, problem) = read(request.send().await.expect("response")).await;
    assert_eq!((status, &problem["type"]), (403, &json!("tamma:policy")), "{problem}");
    let detail = "The policy `no-self-approval` forbids it: Somebody else approves what you added.";
    assert_eq!(problem["detail"], detail);
    assert_eq!(check("Grace", "approve").await["allowed"], true);
    assert_eq!(check("Grace", "raise-budget").await["allowed"], true);
    assert_eq!(check("Ada", "raise-budget").await["allowed"], false);
    server.end().await;
}

#[tokio::test]
async fn a_server_with_an_invalid_policy_does_not_start() {
    let (_database, store) = fresh_database().await;
    let text = POLICIES.replace("resource.author", "resource.owner");
    let policies = [("team.cedar".to_owned(), text)].into();
    let config = ServerConfig { policies, ..config("127.0.0.1:0", None) };
    let refused = ApiServer::bind(config, store, temporal_client().await).await;
    let error = refused.err().expect("not started");
    let cause = std::error::Error::source(&error).expect("cause").to_string();
    assert!(cause.contains("owner") && cause.contains("no-self-approval"), "{cause}");
}
