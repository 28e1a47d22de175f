//! Arithmetic in command lines. It can run commands: in a substitution, and in the index of an
//! array that is the value of a variable.

use tree_sitter::Node;

use super::syntax::{SyntaxReader, Unreadable};

impl SyntaxReader<'_, '_> {
    /// Reads an arithmetic expression.
    pub(super) fn arithmetic(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        self.nested(|reader| match node.kind() {
            "number" if node.child_count() == 0 => Ok(()),
            "variable_name" | "word" | "special_variable_name" => {
                reader.analysis.evaluates_values = true;
                super::words::check_literal(reader.text(node))
            }
            "simple_expansion" | "expansion" | "command_substitution" => {
                reader.analysis.evaluates_values = true;
                reader.word(node).map(drop)
            }
            "arithmetic_expansion"
            | "compound_statement"
            | "subscript"
            | "number"
            | "binary_expression"
            | "unary_expression"
            | "ternary_expression"
            | "postfix_expression"
            | "parenthesized_expression"
            | "variable_assignment" => {
                for (_, part) in reader.parts(node, true)? {
                    if part.is_named() {
                        reader.arithmetic(part)?;
                    }
                }
                Ok(())
            }
            _ => Err("an arithmetic expression has a form that is not known"),
        })
    }
}
