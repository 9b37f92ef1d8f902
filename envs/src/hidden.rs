//! Reading hidden states from JSON: every error names the field, what was found and what was expected.

use serde_json::Value;

use crate::error::{EnvError, Result};

/// A hidden state with the name of the task that reads it.
pub(crate) struct Hidden<'a> {
    pub env: &'a str,
    pub value: &'a Value,
}

impl Hidden<'_> {
    pub fn error(&self, field: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> EnvError {
        let (env, field) = (self.env.to_owned(), field.to_owned());
        EnvError::Hidden { env, field, found: found.to_string(), expected: expected.to_string() }
    }

    pub fn get(&self, field: &str) -> Result<&Value> {
        self.value.get(field).ok_or_else(|| self.error(field, "nothing", "a value"))
    }

    /// A list of numbers; `len` where fixed.
    pub fn floats(&self, field: &str, len: Option<usize>) -> Result<Vec<f64>> {
        let v = self.get(field)?;
        let numbers: Option<Vec<f64>> = v.as_array().and_then(|a| a.iter().map(Value::as_f64).collect());
        let numbers = numbers.ok_or_else(|| self.error(field, v, "a list of numbers"))?;
        if len.is_some_and(|n| n != numbers.len()) {
            return Err(self.error(field, format!("{} numbers", numbers.len()), len.unwrap_or_default()));
        }
        Ok(numbers)
    }

    /// `len` whole numbers below `below`.
    pub fn indices(&self, field: &str, len: usize, below: usize) -> Result<Vec<usize>> {
        self.index_list(field, self.get(field)?, len, below)
    }

    /// A `rows` × `columns` grid of whole numbers below `below`, row-major.
    pub fn grid(&self, field: &str, rows: usize, columns: usize, below: usize) -> Result<Vec<usize>> {
        let v = self.get(field)?;
        let lines = v.as_array().filter(|a| a.len() == rows);
        let lines = lines.ok_or_else(|| self.error(field, v, format!("{rows} rows")))?;
        let mut cells = Vec::with_capacity(rows * columns);
        for line in lines {
            cells.extend(self.index_list(field, line, columns, below)?);
        }
        Ok(cells)
    }

    /// `len` (row, column) pairs.
    pub fn pairs(&self, field: &str, len: usize, below: usize) -> Result<Vec<(usize, usize)>> {
        let v = self.get(field)?;
        let pairs = v.as_array().filter(|a| a.len() == len);
        let pairs = pairs.ok_or_else(|| self.error(field, v, format!("{len} pairs")))?;
        pairs.iter().map(|p| self.index_list(field, p, 2, below).map(|p| (p[0], p[1]))).collect()
    }

    fn index_list(&self, field: &str, v: &Value, len: usize, below: usize) -> Result<Vec<usize>> {
        let index = |x: &Value| x.as_u64().and_then(|x| usize::try_from(x).ok()).filter(|x| *x < below);
        let list: Option<Vec<usize>> = v.as_array().and_then(|a| a.iter().map(index).collect());
        list.filter(|l| l.len() == len)
            .ok_or_else(|| self.error(field, v, format!("{len} whole numbers from 0 to {}", below.saturating_sub(1))))
    }
}
