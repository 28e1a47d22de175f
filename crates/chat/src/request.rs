//! From orders to a change, or to the question that stands in its way.

use std::ops::Range;

use tamma_core::budget::Grant;
use tamma_core::ids::TaskId;
use tamma_core::knowledge::Status;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{Answer, State};

use crate::change::{Act, Change, Decision, NewTask};
use crate::order::{Order, VERBS, Verb, order_in, orders};
use crate::refer::{self, Found};
use crate::understand::understood;
use crate::words::{Own, form};
use crate::{Context, Intent, Subject, Unclear, Understood};

/// What a message orders, if it orders anything.
pub(crate) fn read(own: &Own<'_>, context: &Context) -> Option<Understood> {
    let mut orders = orders(own, context);
    let about = |order: &Order| own.text.get(order.about.clone()).unwrap_or_default();
    orders.retain(|order| order.verb != Verb::Add || add(own, order, context).is_some());
    orders.retain(|order| !order.stated || refer::is_bare(about(order), context, order.verb));
    let first = orders.first()?;
    let taken_back = form!(
        r"\b(?:just kidding|kidding|jk|no way|never ?mind|scratch that|(?:wait|actually),? (?:no|don['’]?t|do not)|or not)\b"
    );
    if first.words.is_none() && own.text.get(first.start..).is_some_and(|it| taken_back.is(it)) {
        return Some(understood(Intent::Talk, 70, "it takes its own order back"));
    }
    if orders.iter().all(|order| form!(r"^\s*(?:nothing|none|no ?one)\b").is(about(order))) {
        return Some(understood(Intent::Talk, 80, "it orders nothing"));
    }
    let unclear = |unclear, why: &str| Some(understood(Intent::Unclear(unclear), 70, why));
    if conditional(own, first) {
        return unclear(Unclear::Condition, "the order hangs on a condition or a time");
    }
    let lesson = form!(r"\b(?:lessons?|learnings?|knowledge|rules?|conventions?)\b").is(&own.text);
    let Some(order) = single(own, &orders, context) else {
        return unclear(Unclear::OneAtATime, "there is more than one order, or one for several");
    };
    let made = match order.verb {
        Verb::Add => add(own, order, context)?,
        Verb::Retire => decide(own, order, Decision::Retire, context),
        Verb::Approve if lesson => decide(own, order, Decision::Approve, context),
        Verb::Reject if lesson => decide(own, order, Decision::Reject, context),
        // To be rid of a lesson is to reject it while it waits, and to retire it once it counts.
        Verb::Cancel if lesson => decide(own, order, Decision::Reject, context)
            .or_else(|_| decide(own, order, Decision::Retire, context)),
        Verb::Fine => match task(own, order, context) {
            Ok(task) => Ok(Change::Task { task, act: act(own, order, task, context).ok()? }),
            Err(_) => return None,
        },
        _ => task(own, order, context)
            .and_then(|task| Ok(Change::Task { task, act: act(own, order, task, context)? })),
    };
    Some(match made {
        Ok(change) => {
            let sure = if order.clause == 0 { 90 } else { 80 };
            understood(Intent::Change(change), sure, format!("it orders to {}", order.verb))
        }
        Err(back) => {
            let why = format!("it orders to {}, and something is missing", order.verb);
            understood(Intent::Unclear(back), 70, why)
        }
    })
}

/// The one order of a message, if it has one for one task.
fn single<'a>(own: &Own<'_>, orders: &'a [Order], context: &Context) -> Option<&'a Order> {
    // "Looks good" and "give it 5 dollars" go with another order.
    let weak = |order: &&Order| matches!(order.verb, Verb::Fine | Verb::Grant);
    let strong: Vec<_> = orders.iter().filter(|order| !weak(order)).collect();
    let (order, more) = match &*strong {
        [] => (orders.first()?, false),
        [order] => (*order, false),
        [order, others @ ..] => {
            let points = |other: &Order| {
                let about = own.text.get(other.about.clone()).unwrap_or_default();
                !matches!(refer::find(about, context, |_| true), Found::Pronoun | Found::Nothing)
            };
            (*order, others.iter().any(|other| other.verb != order.verb || points(other)))
        }
    };
    let about = own.text.get(order.about.clone()).unwrap_or_default();
    let several = order.verb != Verb::Add
        && form!(r"\b(?:all|everything|every|each|both|any|anything)\b").is(about);
    let named =
        refer::named(&own.text, context).into_iter().flatten().count() > 1 && order.words.is_none();
    let or = form!(r"\bor (?P<next>[a-z-]+)");
    let either = or
        .group(about, "next")
        .and_then(|at| about.get(at))
        .is_some_and(|next| VERBS.contains(&next));
    (!(more || several || named || either)).then_some(order)
}

/// Whether an order is for another time, or only in some case. Words that are passed on may say
/// what they like.
fn conditional(own: &Own<'_>, order: &Order) -> bool {
    let end = if order.words.is_some() { order.start } else { own.text.len() };
    let text = own.text.get(..end).unwrap_or_default();
    let text = text.replace("once more", "").replace("once again", "").replace("at once", "");
    let case = form!(
        r"\b(?:if|unless|once|whenever|when|provided|assuming|in case|as soon as|as long as)\b"
    );
    let time = form!(
        r"\b(?:tomorrow|tonight|later|next week|after|(?:on|before|after|by) (?:mon|tues|wednes|thurs|fri|satur|sun)day|at \d)\b"
    );
    case.is(&text) || (order.verb != Verb::Pause && time.is(&text))
}

/// The task that an order is for.
fn task(own: &Own<'_>, order: &Order, context: &Context) -> Result<TaskId, Unclear> {
    let fits = |task: &Subject| order.verb.fits(task);
    let checked = |task: TaskId| match context.task(task) {
        Some(subject) if fits(subject) => Ok(task),
        Some(_) => Err(Unclear::DoesNotFit { task, verb: order.verb }),
        None => Err(Unclear::UnknownTask { said: String::new() }),
    };
    let which = |tasks| Err(Unclear::Which { tasks, lessons: Vec::new() });
    let about = own.text.get(without_reason(own, order)).unwrap_or_default();
    match refer::find(about, context, fits) {
        Found::One(task) => return checked(task),
        Found::Many(tasks) => return which(tasks),
        Found::Unknown(said) => return Err(Unclear::UnknownTask { said }),
        Found::Pronoun | Found::Nothing => {}
    }
    // "The refund plan is fine, approve it": what was said just before.
    let before = own.clauses.get(order.clause).map(|clause| clause.at.start..order.start);
    let clauses = own.clauses.iter().take(order.clause).rev().map(|clause| clause.at.clone());
    for place in before.into_iter().chain(clauses) {
        match refer::find(own.text.get(place).unwrap_or_default(), context, fits) {
            Found::One(task) => return checked(task),
            Found::Many(tasks) => return which(tasks),
            _ => {}
        }
    }
    if let Some(last) = context.last {
        return checked(last);
    }
    let open: Vec<_> = context.tasks.iter().filter(|task| fits(task)).map(|task| task.id).collect();
    match &*open {
        [task] => Ok(*task),
        [] => Err(Unclear::UnknownTask { said: String::new() }),
        _ => which(open),
    }
}

/// Where it is said what an order is for, without why.
fn without_reason(own: &Own<'_>, order: &Order) -> Range<usize> {
    let about = own.text.get(order.about.clone()).unwrap_or_default();
    let end = form!(r"\b(?:because|since|cause|due to)\b").find(about);
    order.about.start..end.map_or(order.about.end, |end| order.about.start + end.start)
}

/// Why, as the person said it: after "because", or what follows the order and is nothing else.
fn reason(own: &Own<'_>, order: &Order) -> Option<String> {
    let clause = own.clauses.get(order.clause)?;
    let said = own.text.get(order.start..clause.at.end)?;
    let start = if let Some(found) = form!(r"\b(?:because|since|cause|due to)\s").find(said) {
        order.start + found.end
    } else {
        let next = own.clauses.get(order.clause + 1)?;
        let text = own.clause(next);
        let other = form!(
            r"^\s*(?:don['’]?t|do not|never|please|pls|thanks|thank you|thx|ok|how|what|when|why|who|where|tamma|then|move on|go on|carry on)\b|--|^\s*rm\b|^\s*(?:it |that )?(?:looks|sounds) (?:good|fine|great|ok)|\$\d|\d+ (?:more )?(?:dollars|usd|runs)"
        );
        let ordered = order_in(own, order.clause + 1, next).is_some_and(|it| it.verb != Verb::Add);
        if next.asked || other.is(text) || ordered {
            return None;
        }
        next.at.start
    };
    let said = own.said(start..own.message.len());
    let said = said.trim_end_matches(['.', '!', ' ']);
    (!said.is_empty()).then(|| said.to_owned())
}

/// What an order does to a task.
fn act(own: &Own<'_>, order: &Order, task: TaskId, context: &Context) -> Result<Act, Unclear> {
    let Some(subject) = context.task(task) else {
        return Err(Unclear::UnknownTask { said: String::new() });
    };
    let words = match order.verb {
        Verb::Modify | Verb::Reply => passed_on(own, order),
        _ => reason(own, order),
    };
    let said = if order.verb == Verb::RollBack { order.start } else { 0 };
    act_of(order.verb, subject, words, own.text.get(said..).unwrap_or_default())
}

/// What a verb does to a task. `words` are the reason, or what is passed on; what may be spent, and
/// where to roll back to, is in the text.
pub(crate) fn act_of(
    verb: Verb,
    task: &Subject,
    words: Option<String>,
    text: &str,
) -> Result<Act, Unclear> {
    let may = |answer| task.answers.contains(&answer);
    let reason = words;
    Ok(match verb {
        Verb::Approve | Verb::Fine if may(Answer::Approve) => Act::Approve { reason },
        Verb::Approve | Verb::Fine => Act::Accept { reason },
        Verb::Reject if may(Answer::Reject) => Act::Reject { reason },
        Verb::Reject => Act::Rework { reason },
        Verb::Pause => Act::Pause,
        Verb::Resume => Act::Resume,
        Verb::Continue if task.paused => Act::Resume,
        Verb::Continue => Act::Continue { grant: grant(text) },
        Verb::Retry => Act::Retry { grant: grant(text) },
        Verb::Cancel => Act::Cancel { reason },
        Verb::Skip => Act::Skip { reason },
        Verb::Abandon => Act::Abandon { reason },
        Verb::Acknowledge => Act::Acknowledge,
        Verb::Override => {
            Act::Override { reason: reason.ok_or(Unclear::Reason { task: task.id })? }
        }
        Verb::RollBack => {
            Act::RollBack { to: state(text).ok_or(Unclear::WhereTo { task: task.id })?, reason }
        }
        Verb::Modify => Act::Modify { words: reason.ok_or(Unclear::What)? },
        Verb::Reply => Act::Reply { words: reason.ok_or(Unclear::What)? },
        Verb::Stop => {
            return Err(Unclear::WhichCommand { verbs: vec![Verb::Pause, Verb::Cancel] });
        }
        Verb::Grant => {
            return Err(Unclear::WhichCommand { verbs: vec![Verb::Retry, Verb::Continue] });
        }
        Verb::Retire | Verb::Add => return Err(Unclear::What),
    })
}

/// The words that an order passes on; what was quoted, where it passes on a quote.
fn passed_on(own: &Own<'_>, order: &Order) -> Option<String> {
    let said = own.said(order.words.clone()?);
    let said = said.trim_end_matches(['.', '!', '?', ' ']);
    let quoted = || own.quoted.map(crate::words::clean);
    let said = Some(said.to_owned()).filter(|said| !said.is_empty()).or_else(quoted);
    said.filter(|said| !said.is_empty())
}

/// What a task may use beyond its limits.
fn grant(text: &str) -> Grant {
    let number = |at: Option<Range<usize>>| at.and_then(|at| text.get(at));
    let usd = form!(r"\$ ?(?P<n>\d+(?:\.\d+)?)").group(text, "n");
    let usd = usd.or_else(|| {
        let named =
            form!(r"\b(?P<n>\d+(?:\.\d+)?) (?:more |extra |additional )?(?:dollars?|usd|bucks)\b");
        named.group(text, "n")
    });
    let runs =
        form!(r"\b(?P<n>\d+) (?:more |extra |additional )?(?:runs?|iterations?|attempts?)\b");
    let tokens = form!(r"\b(?P<n>\d+) (?:more |extra |additional )?tokens?\b");
    Grant {
        usd: number(usd).and_then(|n| n.parse().ok()).unwrap_or_default(),
        iterations: number(runs.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
        tokens: number(tokens.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
    }
}

/// The state that people mean with a word of theirs.
fn state(text: &str) -> Option<State> {
    let to = form!(
        r"\bto (?:the |an? )?(?P<to>plan|approv|implement|cod|in[_ ]progress|test|quality|review|validated|pending)"
    );
    Some(match text.get(to.group(text, "to")?)? {
        "plan" => State::Planning,
        "approv" => State::AwaitingApproval,
        "test" => State::Testing,
        "quality" | "review" => State::QualityReview,
        "validated" => State::Validated,
        "pending" => State::Pending,
        _ => State::InProgress,
    })
}

/// What is decided of a lesson.
fn decide(
    own: &Own<'_>,
    order: &Order,
    decision: Decision,
    context: &Context,
) -> Result<Change, Unclear> {
    let wanted = if decision == Decision::Retire { Status::Approved } else { Status::Pending };
    let about = own.text.get(without_reason(own, order)).unwrap_or_default();
    let text = if refer::content(about).is_empty() { &*own.text } else { about };
    let lesson = refer::lesson(text, context, |lesson| lesson.status == wanted)?;
    Ok(Change::Lesson { lesson: lesson.id, decision, reason: reason(own, order) })
}

/// A new task, or an addition to one that is there. Nothing where the words only look like an order.
fn add(own: &Own<'_>, order: &Order, context: &Context) -> Option<Result<Change, Unclear>> {
    let from = order.words.clone()?.start;
    let end = own.sentence_end(from);
    let text = own.text.get(from..end)?;
    if form!(r"^(?:update (?:on|me|us|about)\b|(?:need|want) (?:the|to|your|my|more|help|you|it|that|this)\b|move on\b|make (?:sure|sense))").is(text) {
        return None;
    }
    // "Fix it" says not enough for a task.
    if form!(r"^[a-z]+ (?:it|that|this|them|me|something)\b").is(text) {
        return Some(Err(Unclear::What));
    }
    let to =
        form!(r"\bto (?P<to>(?:the )?[a-z0-9 -]+ (?:one|task|plan)|it|that one|this one|#\d+)$");
    if let Some(to) = to.group(text, "to").and_then(|at| text.get(at)) {
        let found = match refer::find(to, context, |task| Verb::Modify.fits(task)) {
            Found::Pronoun => context.last,
            Found::One(task) => Some(task),
            _ => None,
        };
        if let Some(task) =
            found.filter(|task| context.task(*task).is_some_and(|it| Verb::Modify.fits(it)))
        {
            let act = Act::Modify { words: own.said(from..end) };
            return Some(Ok(Change::Task { task, act }));
        }
    }
    let wished = form!(r"^(?:need|want|['’]d like|would like) ").find(text).map_or(0, |it| it.end);
    // "I need a summary, what was completed?" asks.
    let asks =
        form!(r"^an? (?:summary|overview|report|list|update|answer|figure|number|hint|reminder)\b");
    let rest = text.get(wished..).unwrap_or_default();
    if wished > 0 && (asks.is(rest) || own.clauses.iter().any(|clause| clause.asked)) {
        return None;
    }
    let start = from + wished;
    let text = text.get(wished..)?;
    let kind = form!(
        r"^(?P<make>(?:new|add|create|file|open|make|log|raise|submit|register) )?(?:an? )?(?:new )?(?:(?P<how>urgent|critical|high|medium|low)(?:[- ]prio(?:rity)?)? )?(?P<noun>task|ticket|bugfix|bug|issue|chore|feature|docs|refactor|test|story)\b(?P<mark>\s*:\s*| (?:to|for|that|about) |\s*$| )"
    );
    let part = |name: &str| kind.group(text, name).and_then(|at| text.get(at));
    let noun = part("noun").unwrap_or_default();
    let mark = part("mark").unwrap_or_default();
    let made = part("make").is_some() || wished > 0;
    let work = matches!(noun, "task" | "ticket");
    let named = !noun.is_empty()
        && (mark.contains(':')
            || (made
                && (work
                    || (matches!(noun, "bug" | "issue" | "chore" | "story") && mark.len() > 1))));
    if !named
        && form!(r"^(?:new|file|open|task|bug|docs|chore|feature|test|raise|log|submit|register)\b")
            .is(text)
    {
        return None;
    }
    let skip = if named { kind.group(text, "mark").map_or(0, |mark| mark.end) } else { 0 };
    let end = start + form!(r"(?:,? (?:please|pls|thanks|thank you|with|(?:low|medium|high|critical|urgent|top) prio(?:rity)?))*\s*$").find(text).map_or(text.len(), |tail| tail.start);
    let title = own.said(start + skip..end.max(start + skip));
    if title.is_empty() {
        return Some(Err(Unclear::What));
    }
    let rest = own.said(own.sentence_end(from)..own.message.len());
    let rest = rest.trim_start_matches(['.', '!', '?', ' ']);
    let description = (!rest.is_empty()
        && !form!(r"(?i)^(?:thanks|thank you|thx|please)\b").is(rest))
    .then(|| rest.to_owned());
    Some(Ok(Change::Add(NewTask {
        r#type: kind_of(noun, &title.to_ascii_lowercase()),
        priority: priority(&own.text, part("how")),
        title,
        description,
    })))
}

fn kind_of(noun: &str, title: &str) -> TaskType {
    match noun {
        "bug" | "bugfix" => return TaskType::Bugfix,
        "feature" => return TaskType::Feature,
        "chore" => return TaskType::Chore,
        "docs" => return TaskType::Docs,
        "refactor" => return TaskType::Refactor,
        _ => {}
    }
    if noun == "test" || form!(r"^(?:add|write|create)\b[^,]*\btests?\b|^(?:test|cover) ").is(title)
    {
        TaskType::Test
    } else if form!(r"^(?:document|describe)\b|\b(?:readme|docs|documentation|changelog)\b")
        .is(title)
    {
        TaskType::Docs
    } else if form!(r"^fix\b|\b(?:bug|crash|crashes|broken|fails?|error|wrong|regression)\b")
        .is(title)
    {
        TaskType::Bugfix
    } else if form!(r"^(?:refactor|rename|extract|simplify|restructure|split|move)\b").is(title) {
        TaskType::Refactor
    } else if form!(
        r"^(?:bump|upgrade|clean ?up|remove|delete|get rid of)\b|\b(?:dependenc(?:y|ies)|lint)\b"
    )
    .is(title)
    {
        TaskType::Chore
    } else {
        TaskType::Feature
    }
}

fn priority(text: &str, said: Option<&str>) -> Option<Priority> {
    let before = form!(r"^\s*(?P<how>urgent|critical|asap)\b").group(text, "how");
    let after =
        form!(r"\b(?P<how>low|medium|high|critical|urgent|top) prio(?:rity)?\b").group(text, "how");
    match said.or_else(|| text.get(before.or(after)?))? {
        "urgent" | "asap" | "critical" | "top" => Some(Priority::Critical),
        other => other.parse().ok(),
    }
}
