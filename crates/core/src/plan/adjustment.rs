//! Edits of a plan, field by field.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Plan, PlanError};

/// Fields of a plan that a person can edit.
pub const EDITABLE_FIELDS: [&str; 14] = [
    "summary",
    "approach",
    "file_changes",
    "testing_strategy",
    "signals",
    "estimated_tokens",
    "estimated_cost_usd",
    "risks",
    "dependencies",
    "test_changes",
    "criteria",
    "assumptions",
    "questions",
    "verification",
];

/// Edit of one field of a plan
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanAdjustment {
    /// Name of the field, such as `approach` or `file_changes`
    pub field: String,
    /// Value that the person saw. The edit is refused if the plan has another one
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_value: Option<Value>,
    /// Complete new value of the field
    pub new_value: Value,
    /// Reason for this edit
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Reason why a plan cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdjustmentError {
    /// No edit changes anything.
    #[error("the plan is unchanged")]
    Unchanged,
    /// Field that a plan does not have.
    #[error("a plan has no field `{0}`; use one of: {known}", known = EDITABLE_FIELDS.join(", "))]
    UnknownField(String),
    /// Field that is edited twice.
    #[error("`{0}` is edited twice; give each field once")]
    DuplicateField(String),
    /// Field that has changed since the person saw it.
    #[error("`{0}` has changed since you saw it; read the current plan")]
    Outdated(String),
    /// Value of the wrong type.
    #[error("`{field}` cannot have this value: {reason}")]
    WrongType {
        /// Name of the field.
        field: String,
        /// Reason, from the parser.
        reason: String,
    },
    /// Edited plan that is not valid.
    #[error("the edited plan is invalid: {}", join(.0))]
    Invalid(Vec<PlanError>),
}

fn join(errors: &[PlanError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Plan {
    /// Returns the plan with edited fields, and the edits that change something, each with the
    /// value before.
    pub fn apply_adjustments(
        &self,
        adjustments: &[PlanAdjustment],
    ) -> Result<(Self, Vec<PlanAdjustment>), AdjustmentError> {
        let mut plan = self.clone();
        let mut applied: Vec<PlanAdjustment> = Vec::new();
        for (index, adjustment) in adjustments.iter().enumerate() {
            let field = &adjustment.field;
            let Some(before) = plan.field(field) else {
                return Err(AdjustmentError::UnknownField(field.chars().take(40).collect()));
            };
            if adjustments[..index].iter().any(|other| other.field == *field) {
                return Err(AdjustmentError::DuplicateField(field.clone()));
            }
            if adjustment.original_value.as_ref().is_some_and(|seen| *seen != before) {
                return Err(AdjustmentError::Outdated(field.clone()));
            }
            plan.set_field(field, adjustment.new_value.clone())?;
            if plan.field(field).as_ref() != Some(&before) {
                applied.push(PlanAdjustment { original_value: Some(before), ..adjustment.clone() });
            }
        }
        if applied.is_empty() {
            return Err(AdjustmentError::Unchanged);
        }
        match plan.validate() {
            errors if errors.is_empty() => Ok((plan, applied)),
            errors => Err(AdjustmentError::Invalid(errors)),
        }
    }

    /// Returns the value of a field, or `None` if a plan has no such field. An omitted list is
    /// empty, and an omitted number is `null`.
    pub fn field(&self, name: &str) -> Option<Value> {
        if !EDITABLE_FIELDS.contains(&name) {
            return None;
        }
        let plan = serde_json::to_value(self).unwrap_or_default();
        let value = plan.get(name).cloned();
        Some(value.unwrap_or_else(|| Value::Array(Vec::new())))
    }

    fn set_field(&mut self, name: &str, value: Value) -> Result<(), AdjustmentError> {
        let mut plan = serde_json::to_value(&*self).unwrap_or_default();
        plan[name] = value;
        *self = serde_json::from_value(plan).map_err(|error| AdjustmentError::WrongType {
            field: name.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(())
    }
}
