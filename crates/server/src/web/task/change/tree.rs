//! Tree of the changed files.

use std::fmt::Write as _;

use crate::web::html::{SafeHtml, push_escaped};

/// File in the tree.
pub(super) struct TreeFile<'a> {
    pub(super) number: usize,
    pub(super) path: &'a str,
    pub(super) is_viewed: bool,
    pub(super) comments: usize,
}

/// File with the part of its path below the current folder.
type TreeItem<'a> = (&'a str, &'a TreeFile<'a>);

/// Deepest folder with a level of its own. Paths below it are shown in one line.
const MAX_DEPTH: usize = 20;

/// Writes the tree as nested lists, in the order of the files. A folder that contains a single folder is
/// one item.
pub(super) fn file_tree(files: &[TreeFile<'_>]) -> SafeHtml {
    let items: Vec<TreeItem<'_>> = files.iter().map(|file| (file.path, file)).collect();
    let mut html = String::new();
    push_items(&mut html, &items, 0);
    SafeHtml::from_escaped(html)
}

/// Returns the folder that a path starts with, if it has a level of its own.
fn first_folder(path: &str, depth: usize) -> Option<&str> {
    path.split_once('/').filter(|_| depth < MAX_DEPTH).map(|(name, _)| name)
}

/// Removes the folder that all paths start with.
fn enter_folder<'a>(items: &[TreeItem<'a>]) -> Vec<TreeItem<'a>> {
    let below = |path: &'a str| path.split_once('/').map_or(path, |(_, below)| below);
    items.iter().map(|(path, file)| (below(path), *file)).collect()
}

fn push_items(html: &mut String, items: &[TreeItem<'_>], depth: usize) {
    html.push_str("<ul>");
    let mut rest = items;
    while let Some(((path, file), others)) = rest.split_first() {
        let Some(folder) = first_folder(path, depth) else {
            push_file(html, path, file);
            rest = others;
            continue;
        };
        let same = rest.iter().take_while(|(path, _)| first_folder(path, depth) == Some(folder));
        let (inside, after) = rest.split_at(same.count());
        push_folder(html, folder, inside, depth);
        rest = after;
    }
    html.push_str("</ul>");
}

/// Writes files that start with the same folder.
fn push_folder(html: &mut String, folder: &str, files: &[TreeItem<'_>], depth: usize) {
    let (mut name, mut depth) = (folder.to_owned(), depth + 1);
    let mut items = enter_folder(files);
    while let Some(only) = items.first().and_then(|(path, _)| first_folder(path, depth))
        && items.iter().all(|(path, _)| first_folder(path, depth) == Some(only))
    {
        name = format!("{name}/{only}");
        depth += 1;
        items = enter_folder(&items);
    }
    html.push_str("<li><details open><summary>");
    push_escaped(html, &name);
    html.push_str("</summary>");
    push_items(html, &items, depth);
    html.push_str("</details></li>");
}

fn push_file(html: &mut String, name: &str, file: &TreeFile<'_>) {
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

    #[test]
    fn the_tree_lists_files_in_the_order_of_the_diff() {
        let deep = "d/".repeat(30) + "e.rs";
        let paths = ["a.rs", "a/b/c.rs", "a/b/d.rs", "a/e.rs", "b.rs", "c/x/y.rs", &deep, "z"];
        let files: Vec<_> = (1..)
            .zip(paths)
            .map(|(number, path)| TreeFile { number, path, is_viewed: false, comments: 0 })
            .collect();
        let html = file_tree(&files).to_string();
        let places: Vec<_> =
            (1..=8).map(|number| html.find(&format!("id=\"t{number}\""))).collect();
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{html}");
        assert_eq!(html.matches("<summary>a</summary>").count(), 1, "{html}");
        assert!(html.contains("<summary>c/x</summary>"), "{html}");
        assert_eq!(html.matches("<ul>").count(), html.matches("</ul>").count(), "{html}");
    }
}
