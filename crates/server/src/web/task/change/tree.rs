//! Tree of the changed files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::web::html::{SafeHtml, push_escaped};

/// File in the tree.
pub(super) struct TreeFile<'a> {
    pub(super) number: usize,
    pub(super) path: &'a str,
    pub(super) is_viewed: bool,
    pub(super) comments: usize,
}

#[derive(Default)]
struct TreeFolder<'a> {
    folders: BTreeMap<&'a str, TreeFolder<'a>>,
    files: Vec<(&'a str, &'a TreeFile<'a>)>,
}

/// Deepest folder with a level of its own. Paths below it are shown in one line.
const MAX_DEPTH: usize = 20;

/// Writes the tree as nested lists. A folder that contains a single folder is one item.
pub(super) fn file_tree(files: &[TreeFile<'_>]) -> SafeHtml {
    let mut root = TreeFolder::default();
    for file in files {
        let (mut folder, mut rest, mut depth) = (&mut root, file.path, 0);
        while depth < MAX_DEPTH
            && let Some((name, below)) = rest.split_once('/')
        {
            folder = folder.folders.entry(name).or_default();
            (rest, depth) = (below, depth + 1);
        }
        folder.files.push((rest, file));
    }
    let mut html = String::new();
    push_folder(&mut html, &root);
    SafeHtml::from_escaped(html)
}

fn push_folder(html: &mut String, folder: &TreeFolder<'_>) {
    html.push_str("<ul>");
    for (name, inner) in &folder.folders {
        let (mut path, mut inner) = ((*name).to_owned(), inner);
        while inner.files.is_empty()
            && inner.folders.len() == 1
            && let Some((name, only)) = inner.folders.iter().next()
        {
            path = format!("{path}/{name}");
            inner = only;
        }
        html.push_str("<li><details open><summary>");
        push_escaped(html, &path);
        html.push_str("</summary>");
        push_folder(html, inner);
        html.push_str("</details></li>");
    }
    for (name, file) in &folder.files {
        let class = if file.is_viewed { " class=\"seen\"" } else { "" };
        let _ = write!(html, "<li{class} id=\"t{0}\"><a href=\"#f{0}\">", file.number);
        push_escaped(html, name);
        html.push_str("</a>");
        if file.is_viewed {
            html.push_str("<span class=\"sr\">, viewed</span>");
        }
        if file.comments > 0 {
            let _ = write!(
                html,
                " <span class=\"count\">{}<span class=\"sr\"> comments</span></span>",
                file.comments
            );
        }
        html.push_str("</li>");
    }
    html.push_str("</ul>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_a_single_folder_are_one_item_and_names_are_escaped() {
        let file = |number, path| TreeFile { number, path, is_viewed: number == 2, comments: 0 };
        let files = [file(1, "src/web/<b>.rs"), file(2, "src/web/b.rs"), file(3, "README.md")];
        let html = file_tree(&files).to_string();
        assert!(html.contains("<summary>src/web</summary>"), "{html}");
        assert!(html.contains("&#60;b&#62;.rs") && !html.contains("<b>"), "{html}");
        assert!(html.contains("<li class=\"seen\" id=\"t2\"><a href=\"#f2\">b.rs</a>"), "{html}");
        assert!(html.contains("<a href=\"#f3\">README.md</a>"), "{html}");
    }
}
