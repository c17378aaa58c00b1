//! One metric as data: what the tables, `explain` and both languages are made from.
//!
//! The types here are shared with `queueing`, whose laws form a catalog of the same kind.

use crate::expr::{Expr, ExprError, parse};
use crate::units::{Quantity, Unit};

/// The same words in the languages of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// English.
    pub en: &'static str,
    /// Chinese.
    pub zh: &'static str,
}

/// Shorthand for a [`Text`].
#[must_use]
pub const fn text(en: &'static str, zh: &'static str) -> Text {
    Text { en, zh }
}

/// A language of the documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese, simplified.
    Zh,
}

impl Text {
    /// The words in one language.
    #[must_use]
    pub const fn in_language(self, language: Language) -> &'static str {
        match language {
            Language::En => self.en,
            Language::Zh => self.zh,
        }
    }
}

/// Where a metric stands in the four layers in which serving is read, or beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// TTFT, TPOT, ITL, E2E and what they are made of.
    Latency,
    /// Rates: requests, tokens, goodput.
    Throughput,
    /// KV cache, batch, GPU.
    Resources,
    /// What tells why: refill rate, queue depth, preemptions.
    Diagnosis,
    /// What a request asks for and what a machine can give.
    Capacity,
    /// The scheduler's update rules.
    Scheduling,
    /// Laws of queueing theory.
    Queueing,
}

/// One input of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// The parameter's name in the function and in the formula text.
    pub id: &'static str,
    /// Its LaTeX symbol.
    pub symbol: &'static str,
    /// What it is, in words.
    pub name: Text,
    /// Its unit.
    pub unit: Unit,
    /// The unit it has inside the formula, where a count stands for something else: a decoding
    /// request yields one token a step, a parameter costs FLOP per token.
    pub counts_as: Option<Unit>,
    /// The interval from which tests draw it; it reaches every branch of the formula.
    pub range: (f64, f64),
    /// Whether it takes whole numbers only.
    pub whole: bool,
}

impl Input {
    /// A real input.
    #[must_use]
    pub const fn real(
        id: &'static str,
        symbol: &'static str,
        unit: Unit,
        range: (f64, f64),
        name: Text,
    ) -> Self {
        Self { id, symbol, name, unit, counts_as: None, range, whole: false }
    }

    /// An input that takes whole numbers.
    #[must_use]
    pub const fn whole(
        id: &'static str,
        symbol: &'static str,
        unit: Unit,
        range: (f64, f64),
        name: Text,
    ) -> Self {
        Self { id, symbol, name, unit, counts_as: None, range, whole: true }
    }

    /// The same input, counted as `unit` inside the formula.
    #[must_use]
    pub const fn counts_as(mut self, unit: Unit) -> Self {
        self.counts_as = Some(unit);
        self
    }

    /// The unit that it has inside the formula.
    #[must_use]
    pub fn formula_unit(&self) -> Unit {
        self.counts_as.unwrap_or(self.unit)
    }
}

/// A value together with the unit of the type that carried it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
}

/// Why a metric's function gave no value, in the words of its own error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl From<crate::Error> for Refusal {
    fn from(e: crate::Error) -> Self {
        Self(e.to_string())
    }
}

/// The value of a typed result, with the unit that its type carries.
///
/// # Errors
///
/// The function's own error as a [`Refusal`].
pub fn computed<Q: Quantity, E: std::fmt::Display>(
    result: Result<Q, E>,
) -> Result<Computed, Refusal> {
    match result {
        Ok(q) => Ok(Computed { value: q.number(), unit: Q::UNIT }),
        Err(e) => Err(Refusal(e.to_string())),
    }
}

/// The value of a function that returns a plain `f64` whose unit only its documentation gives.
///
/// # Errors
///
/// The function's own error as a [`Refusal`].
pub fn computed_as<E: std::fmt::Display>(
    unit: Unit,
    result: Result<f64, E>,
) -> Result<Computed, Refusal> {
    computed(result).map(|c| Computed { unit, ..c })
}

/// A whole number from the tests' and `explain`'s `f64`.
///
/// # Errors
///
/// [`Refusal`] if it is not a whole number that `u64` and `f64` both hold exactly.
pub fn whole(input: &'static str, x: f64) -> Result<u64, Refusal> {
    /// 2^53: above it `f64` skips whole numbers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if x.fract() == 0.0 && 0.0 <= x && x <= EXACT {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        return Ok(x as u64);
    }
    let x = crate::format::plain(x);
    Err(Refusal(format!("{input} must be a whole number from 0 to 2^53, got {x}")))
}

/// How a metric is computed.
#[derive(Clone, Copy, Debug)]
pub enum Formula {
    /// A formula over scalars, in the expression language of [`expr`](crate::expr).
    Scalar {
        /// Its text over the input ids; LaTeX and dimension come from it.
        text: &'static str,
        /// The function itself over inputs in order.
        eval: fn(&[f64]) -> Result<Computed, Refusal>,
        /// A worked example: inputs in order, and the value.
        example: (&'static [f64], f64),
    },
    /// A law over many requests, samples or steps, which no scalar formula says.
    Law {
        /// Hand-written LaTeX.
        latex: &'static str,
        /// Why it is no scalar formula.
        why: Text,
        /// The property test that holds it, as `file::name`.
        test: &'static str,
        /// The worked example in words, with its inputs.
        example: Text,
        /// Runs the function on the example.
        run: fn() -> Result<Computed, Refusal>,
        /// The example's value.
        value: f64,
    },
}

/// Where a definition comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Paper, book, or engine with version and file.
    pub work: &'static str,
    /// Section, function or page; may be empty.
    pub section: &'static str,
}

/// Under which name an engine exports the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The engine and the version read, for example `vLLM 0.33`.
    pub engine: &'static str,
    /// The Prometheus name.
    pub name: &'static str,
    /// What differs from our definition; empty if nothing does.
    pub differs: Text,
}

/// One metric, written once, below its function.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its id: the function's name.
    pub id: &'static str,
    /// Its LaTeX symbol.
    pub symbol: &'static str,
    /// Its name.
    pub name: Text,
    /// Its place in the report and the tables.
    pub layer: Layer,
    /// The unit of its value.
    pub unit: Unit,
    /// Its inputs in the order of the function's parameters.
    pub inputs: &'static [Input],
    /// How it is computed.
    pub formula: Formula,
    /// The function's path.
    pub path: &'static str,
    /// Where the definition comes from.
    pub source: Source,
    /// The trap: what people read into it that it does not say.
    pub note: Text,
    /// The names under which engines export it.
    pub exported: &'static [Exported],
}

impl Metric {
    /// The value of the metric's own function for inputs in order.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the number of inputs is wrong, the function has no value for them, or the
    /// metric is a law over many items.
    pub fn evaluate(&self, inputs: &[f64]) -> Result<Computed, Refusal> {
        let Formula::Scalar { eval, .. } = self.formula else {
            return Err(Refusal(format!(
                "{} is computed over many items, not from scalars",
                self.id
            )));
        };
        if inputs.len() != self.inputs.len() {
            let (want, got) = (self.inputs.len(), inputs.len());
            return Err(Refusal(format!("{} takes {want} inputs, got {got}", self.id)));
        }
        eval(inputs)
    }

    /// The formula text as a tree; `None` for a law over many items, which has no such text.
    ///
    /// # Errors
    ///
    /// Inside the option, [`ExprError`] if the text is not in the expression language.
    #[must_use]
    pub fn expression(&self) -> Option<Result<Expr, ExprError>> {
        match self.formula {
            Formula::Scalar { text, .. } => Some(parse(text)),
            Formula::Law { .. } => None,
        }
    }

    /// The whole statement in LaTeX: symbol, equals sign and formula, or the law as it is written
    /// by hand where that is a statement already.
    ///
    /// A text that is not in the expression language, which the catalog's tests exclude, is shown
    /// as it stands.
    #[must_use]
    pub fn latex(&self) -> String {
        match self.formula {
            Formula::Law { latex, .. } if is_statement(latex) => latex.to_string(),
            Formula::Law { latex, .. } => format!("{} = {latex}", self.symbol),
            Formula::Scalar { text, .. } => {
                let symbol = |name: &str| self.input(name).map(|input| input.symbol);
                let value = parse(text)
                    .map_or_else(|_| format!(r"\text{{{text}}}"), |formula| formula.latex(&symbol));
                format!("{} = {value}", self.symbol)
            }
        }
    }

    /// The value of the formula text, computed as it is written, for inputs in order.
    ///
    /// It is there to check the function and to explain it; the function is faster and stable.
    ///
    /// # Errors
    ///
    /// [`ExprError`] if the metric is a law, the number of inputs is wrong, or the text has no
    /// value for them.
    pub fn by_text(&self, inputs: &[f64]) -> Result<f64, ExprError> {
        let formula = self.expression().ok_or(ExprError::NotScalar { id: self.id })??;
        if inputs.len() != self.inputs.len() {
            let (expected, got) = (self.inputs.len(), inputs.len());
            return Err(ExprError::InputCount { id: self.id, expected, got });
        }
        formula.evaluate(&|name| self.value_of(name, inputs))
    }

    /// The unit of the formula text, with each input in the unit that it has there.
    ///
    /// # Errors
    ///
    /// [`ExprError`] if the metric is a law or the text's units do not fit.
    pub fn text_unit(&self) -> Result<Unit, ExprError> {
        let formula = self.expression().ok_or(ExprError::NotScalar { id: self.id })??;
        formula.unit(&|name| self.input(name).map(Input::formula_unit))
    }

    /// The input with this id, if there is one.
    #[must_use]
    pub fn input(&self, id: &str) -> Option<&'static Input> {
        self.inputs.iter().find(|input| input.id == id)
    }

    /// The value that an input has among values in order, if there is such an input and value.
    #[must_use]
    pub fn value_of(&self, id: &str, values: &[f64]) -> Option<f64> {
        let position = self.inputs.iter().position(|input| input.id == id)?;
        values.get(position).copied()
    }

    /// The function's name: the last part of its path.
    #[must_use]
    pub fn function(&self) -> &'static str {
        self.path.rsplit("::").next().unwrap_or(self.path)
    }
}

/// Whether LaTeX relates two sides, outside of any braces: `\sum_{k=0}` does not.
fn is_statement(latex: &str) -> bool {
    let mut depth = 0_i32;
    let mut outside = String::new();
    for c in latex.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => outside.push(c),
            _ => {}
        }
    }
    // The space keeps `\le` apart from `\left`.
    outside.contains(['=', '<', '>'])
        || [r"\le ", r"\ge ", r"\lt ", r"\gt ", r"\approx "].iter().any(|r| outside.contains(r))
}
