//! The value of a formula, how far rounding can have moved it, and which branches it took.

use super::{Comparison, Condition, Expr, ExprError, Function, Operator, Sum};
use crate::format::plain;

/// How many terms the sums of one evaluation may have together.
///
/// It keeps a formula with a sum up to 10^15 from running for days.
pub const MAX_TERMS: u64 = 10_000_000;

/// Largest whole number whose factorial is finite.
const LARGEST_FACTORIAL: f64 = 170.0;

/// A value with what rounding may have done to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluated {
    /// The value.
    pub value: f64,
    /// How far the value may be off, to first order, when every operation and every input that is
    /// not whole was rounded once.
    ///
    /// It is in the value's unit and follows cancellation: `t_last - t_first` at 600 s may be off
    /// by the rounding of 600 s, however small the difference.
    pub rounding: f64,
}

/// Which branches of a formula evaluations have taken: both sides of each `if`, and each argument
/// of `min` and `max` as the chosen one.
///
/// Arguments that tie are all chosen.
#[derive(Clone, Debug)]
pub struct Branches<'e> {
    forks: Vec<Fork<'e>>,
}

#[derive(Clone, Debug)]
struct Fork<'e> {
    at: &'e Expr,
    taken: Vec<bool>,
}

impl<'e> Branches<'e> {
    /// The branches of a formula, none of them taken yet.
    #[must_use]
    pub fn of(formula: &'e Expr) -> Self {
        let mut forks = Vec::new();
        formula.visit(&mut |at| {
            let ways = match at {
                Expr::If(..) => 2,
                Expr::Call(Function::Min | Function::Max, arguments) => arguments.len(),
                _ => return,
            };
            forks.push(Fork { at, taken: vec![false; ways] });
        });
        Self { forks }
    }

    /// The branches that no evaluation has taken, in words.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for fork in &self.forks {
            for (way, _) in fork.taken.iter().enumerate().filter(|(_, taken)| !**taken) {
                missed.push(match fork.at {
                    Expr::If(condition, ..) => {
                        let side = if way == 0 { "then" } else { "else" };
                        format!("`{side}` of `if {condition}`")
                    }
                    Expr::Call(_, arguments) => {
                        format!("`{}` chosen in `{}`", arguments[way], fork.at)
                    }
                    other => format!("`{other}`"),
                });
            }
        }
        missed
    }

    fn take(&mut self, at: &Expr, way: usize) {
        // Equal parts of one formula are still different places, hence identity.
        if let Some(fork) = self.forks.iter_mut().find(|f| std::ptr::eq(f.at, at)) {
            fork.taken[way] = true;
        }
    }
}

impl Condition {
    /// Whether the condition holds.
    ///
    /// # Errors
    ///
    /// As [`Expr::evaluate`].
    pub fn holds(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Result<bool, ExprError> {
        Evaluation { lookup, indices: Vec::new(), terms: 0, branches: None }.holds(self)
    }
}

pub(super) fn evaluate<'e>(
    formula: &'e Expr,
    lookup: &dyn Fn(&str) -> Option<f64>,
    branches: Option<&mut Branches<'e>>,
) -> Result<Evaluated, ExprError> {
    let mut evaluation = Evaluation { lookup, indices: Vec::new(), terms: 0, branches };
    let Rounded { value, error } = evaluation.value(formula)?;
    let rounding = error * f64::EPSILON;
    // A bound that is beyond all numbers says nothing but is still a number.
    Ok(Evaluated { value, rounding: if rounding.is_finite() { rounding } else { f64::MAX } })
}

/// A value, and its rounding error in multiples of the machine epsilon.
#[derive(Clone, Copy)]
struct Rounded {
    value: f64,
    error: f64,
}

/// A number as it came: whole numbers are exact, others were rounded when they were written.
fn given(value: f64) -> Rounded {
    Rounded { value, error: if value.fract() == 0.0 { 0.0 } else { value.abs() } }
}

struct Evaluation<'a, 'e> {
    lookup: &'a dyn Fn(&str) -> Option<f64>,
    /// The indices of the sums around, innermost last.
    indices: Vec<(&'e str, f64)>,
    terms: u64,
    branches: Option<&'a mut Branches<'e>>,
}

fn no_value(part: &Expr, why: impl Into<String>) -> ExprError {
    ExprError::NoValue { part: part.to_string(), why: why.into() }
}

/// `value` with the error of its operands and its own, if it is finite.
fn finite(part: &Expr, value: f64, operands: f64) -> Result<Rounded, ExprError> {
    if value.is_finite() {
        // Below the smallest normal number the spacing of numbers stays the same: underflow.
        return Ok(Rounded { value, error: operands + value.abs().max(f64::MIN_POSITIVE) });
    }
    Err(no_value(part, "its size passes the largest number, 1.8e308"))
}

impl<'e> Evaluation<'_, 'e> {
    fn value(&mut self, e: &'e Expr) -> Result<Rounded, ExprError> {
        match e {
            Expr::Number(x) if x.is_finite() => Ok(given(*x)),
            Expr::Number(x) => {
                Err(no_value(e, format!("a number must be finite, got {}", plain(*x))))
            }
            Expr::Name(name) => self.named(e, name),
            Expr::Negative(a) => {
                let Rounded { value, error } = self.value(a)?;
                Ok(Rounded { value: -value, error })
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                binary(e, *op, a, b)
            }
            Expr::If(condition, yes, no) => {
                let holds = self.holds(condition)?;
                self.take(e, usize::from(!holds));
                self.value(if holds { yes } else { no })
            }
            Expr::Call(function @ (Function::Min | Function::Max), arguments) => {
                self.extreme(e, *function, arguments)
            }
            Expr::Call(function, arguments) => match arguments.as_slice() {
                [x] => {
                    let x = self.value(x)?;
                    apply(e, *function, x)
                }
                _ => Err(no_value(e, format!("{} takes one argument", function.text()))),
            },
            Expr::Sum(sum) => self.sum(e, sum),
        }
    }

    fn named(&self, e: &Expr, name: &str) -> Result<Rounded, ExprError> {
        if let Some((_, k)) = self.indices.iter().rev().find(|(index, _)| *index == name) {
            return Ok(given(*k));
        }
        match (self.lookup)(name) {
            None => Err(ExprError::UnknownName { name: name.to_string() }),
            Some(x) if x.is_finite() => Ok(given(x)),
            Some(x) => Err(no_value(e, format!("it must be a finite number, got {}", plain(x)))),
        }
    }

    fn take(&mut self, at: &Expr, way: usize) {
        if let Some(branches) = &mut self.branches {
            branches.take(at, way);
        }
    }

    fn holds(&mut self, condition: &'e Condition) -> Result<bool, ExprError> {
        Ok(match condition {
            Condition::Compare(comparison, a, b) => {
                let (a, b) = (self.value(a)?.value, self.value(b)?.value);
                #[expect(clippy::float_cmp, reason = "a formula's `==` means equal numbers")]
                match comparison {
                    Comparison::Less => a < b,
                    Comparison::LessOrEqual => a <= b,
                    Comparison::Greater => a > b,
                    Comparison::GreaterOrEqual => a >= b,
                    Comparison::Equal => a == b,
                    Comparison::NotEqual => a != b,
                }
            }
            // The right side is not looked at where the left one decides, so that a condition may
            // guard the next from a division by zero.
            Condition::And(a, b) => self.holds(a)? && self.holds(b)?,
            Condition::Or(a, b) => self.holds(a)? || self.holds(b)?,
        })
    }

    fn extreme(
        &mut self,
        e: &'e Expr,
        function: Function,
        arguments: &'e [Expr],
    ) -> Result<Rounded, ExprError> {
        let mut values = Vec::with_capacity(arguments.len());
        for a in arguments {
            values.push(self.value(a)?);
        }
        let better = |a: f64, b: f64| if function == Function::Min { a < b } else { a > b };
        let best = values
            .iter()
            .copied()
            .reduce(|best, x| if better(x.value, best.value) { x } else { best })
            .ok_or_else(|| no_value(e, format!("{} needs arguments", function.text())))?;
        for (way, x) in values.iter().enumerate() {
            if !better(best.value, x.value) {
                self.take(e, way);
            }
        }
        Ok(best)
    }

    fn sum(&mut self, e: &'e Expr, sum: &'e Sum) -> Result<Rounded, ExprError> {
        let mut bound = |part: &'e Expr| {
            let k = self.value(part)?.value;
            if k.fract() == 0.0 && k.abs() <= EXACT {
                Ok(k)
            } else {
                Err(no_value(
                    e,
                    format!(
                        "its bound `{part}` must be a whole number within 2^53, got {}",
                        plain(k)
                    ),
                ))
            }
        };
        let (low, high) = (bound(&sum.low)?, bound(&sum.high)?);
        let mut total = Rounded { value: 0.0, error: 0.0 };
        let mut k = low;
        while k <= high {
            self.terms += 1;
            if MAX_TERMS < self.terms {
                return Err(ExprError::TooManyTerms { part: e.to_string() });
            }
            self.indices.push((&sum.index, k));
            let term = self.value(&sum.body)?;
            self.indices.pop();
            total = finite(e, total.value + term.value, total.error + term.error)?;
            k += 1.0;
        }
        Ok(total)
    }
}

/// 2^53: above it `f64` skips whole numbers, and an index would stand still.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn binary(e: &Expr, op: Operator, a: Rounded, b: Rounded) -> Result<Rounded, ExprError> {
    let (x, y) = (a.value, b.value);
    match op {
        Operator::Add => finite(e, x + y, a.error + b.error),
        Operator::Subtract => finite(e, x - y, a.error + b.error),
        Operator::Multiply => finite(e, x * y, x.abs() * b.error + y.abs() * a.error),
        Operator::Divide => {
            if y == 0.0 {
                let divisor = match e {
                    Expr::Binary(_, _, divisor) => divisor.to_string(),
                    _ => e.to_string(),
                };
                return Err(no_value(e, format!("the divisor `{divisor}` is 0")));
            }
            let value = x / y;
            finite(e, value, (a.error + value.abs() * b.error) / y.abs())
        }
        Operator::Power => {
            if x == 0.0 && y < 0.0 {
                return Err(no_value(e, format!("0 to the power {y} divides by 0")));
            }
            if x < 0.0 && y.fract() != 0.0 {
                return Err(no_value(
                    e,
                    format!(
                        "the base must be at least 0 for the exponent {}, got {}",
                        plain(y),
                        plain(x)
                    ),
                ));
            }
            let value = x.powf(y);
            let relative = if x == 0.0 {
                0.0
            } else {
                y.abs() * a.error / x.abs() + x.abs().ln().abs() * b.error
            };
            finite(e, value, value.abs() * relative)
        }
    }
}

fn apply(e: &Expr, function: Function, x: Rounded) -> Result<Rounded, ExprError> {
    let Rounded { value: x, error } = x;
    match function {
        // A whole number is exact; where rounding decides which one, both sides must agree on it.
        Function::Ceil => Ok(Rounded { value: x.ceil(), error: 0.0 }),
        Function::Floor => Ok(Rounded { value: x.floor(), error: 0.0 }),
        Function::Exp => finite(e, x.exp(), x.exp() * error),
        Function::Ln => {
            if x <= 0.0 {
                return Err(no_value(
                    e,
                    format!("the logarithm needs a number above 0, got {}", plain(x)),
                ));
            }
            finite(e, x.ln(), error / x)
        }
        Function::Sqrt => {
            if x < 0.0 {
                return Err(no_value(
                    e,
                    format!("the root needs a number of at least 0, got {}", plain(x)),
                ));
            }
            let root = x.sqrt();
            // At 0 the derivative has no value; the root of the error is the bound there.
            let lost =
                if root == 0.0 { (error / f64::EPSILON).sqrt() } else { error / (2.0 * root) };
            finite(e, root, lost)
        }
        Function::Fact => {
            if x.fract() != 0.0 || x < 0.0 || LARGEST_FACTORIAL < x {
                return Err(no_value(
                    e,
                    format!("a factorial needs a whole number from 0 to 170, got {}", plain(x)),
                ));
            }
            let mut product = 1.0;
            let mut k = 2.0;
            while k <= x {
                product *= k;
                k += 1.0;
            }
            finite(e, product, product * x)
        }
        Function::Min | Function::Max => Err(no_value(e, "min and max take several arguments")),
    }
}
