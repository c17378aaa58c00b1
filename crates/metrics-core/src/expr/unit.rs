//! The unit of a formula.

use super::{Condition, Expr, ExprError, Function, Operator};
use crate::units::Unit;

/// Largest whole power of a unit: no formula here needs more, and units hold small exponents.
const MAX_POWER: f64 = 8.0;

/// What is known of a part's unit.
#[derive(Clone, Copy, PartialEq)]
enum Dimension {
    /// The literal 0, which is nothing in any unit.
    Zero,
    /// A literal: a pure number, or a count of what it is joined with.
    Literal,
    /// A unit.
    Of(Unit),
}

impl Dimension {
    /// The unit where nothing else decides.
    const fn alone(self) -> Unit {
        match self {
            Self::Zero | Self::Literal => Unit::ONE,
            Self::Of(unit) => unit,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Zero | Self::Literal => "1 (a number)".to_string(),
            Self::Of(unit) => unit.to_string(),
        }
    }

    fn is_pure(self) -> bool {
        self.alone().is_one()
    }
}

pub(super) fn unit(
    formula: &Expr,
    unit_of: &dyn Fn(&str) -> Option<Unit>,
) -> Result<Unit, ExprError> {
    Units { unit_of, indices: Vec::new() }.of(formula).map(Dimension::alone)
}

struct Units<'a, 'e> {
    unit_of: &'a dyn Fn(&str) -> Option<Unit>,
    /// The indices of the sums around, innermost last.
    indices: Vec<(&'e str, Dimension)>,
}

/// The operand of `part` with what it must be.
fn not_allowed(part: &Expr, operand: &Expr, is: Dimension, must: &'static str) -> ExprError {
    ExprError::UnitNotAllowed {
        part: part.to_string(),
        operand: operand.to_string(),
        unit: is.describe(),
        must,
    }
}

impl<'e> Units<'_, 'e> {
    fn of(&mut self, e: &'e Expr) -> Result<Dimension, ExprError> {
        match e {
            Expr::Number(0.0) => Ok(Dimension::Zero),
            Expr::Number(_) => Ok(Dimension::Literal),
            Expr::Name(name) => self.named(name),
            Expr::Negative(a) => self.of(a),
            Expr::Binary(Operator::Add | Operator::Subtract, a, b) => self.joined(e, a, b),
            Expr::Binary(Operator::Multiply, a, b) => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                Ok(product(a, b, Unit::times))
            }
            Expr::Binary(Operator::Divide, a, b) => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                Ok(product(a, b, Unit::per))
            }
            Expr::Binary(Operator::Power, base, exponent) => self.power(e, base, exponent),
            Expr::If(condition, yes, no) => {
                self.check(condition)?;
                self.joined(e, yes, no)
            }
            Expr::Call(function, arguments) => self.call(e, *function, arguments),
            Expr::Sum(sum) => {
                let index = self.joined(e, &sum.low, &sum.high)?;
                if !is_countable(index) {
                    let must = "be a pure number or a count, since sums run over whole numbers";
                    return Err(not_allowed(e, &sum.high, index, must));
                }
                self.indices.push((&sum.index, index));
                let body = self.of(&sum.body);
                self.indices.pop();
                body
            }
        }
    }

    fn named(&self, name: &str) -> Result<Dimension, ExprError> {
        if let Some((_, index)) = self.indices.iter().rev().find(|(index, _)| *index == name) {
            return Ok(*index);
        }
        (self.unit_of)(name)
            .map(Dimension::Of)
            .ok_or_else(|| ExprError::UnknownName { name: name.to_string() })
    }

    fn joined(&mut self, part: &Expr, a: &'e Expr, b: &'e Expr) -> Result<Dimension, ExprError> {
        let (left, right) = (self.of(a)?, self.of(b)?);
        common((a, left), (b, right), &|| part.to_string())
    }

    /// The conditions of an `if` compare like with like.
    fn check(&mut self, condition: &'e Condition) -> Result<(), ExprError> {
        match condition {
            Condition::Compare(_, a, b) => {
                let (left, right) = (self.of(a)?, self.of(b)?);
                common((a, left), (b, right), &|| condition.to_string())?;
                Ok(())
            }
            Condition::And(a, b) | Condition::Or(a, b) => {
                self.check(a)?;
                self.check(b)
            }
        }
    }

    fn power(
        &mut self,
        part: &Expr,
        base: &'e Expr,
        exponent: &'e Expr,
    ) -> Result<Dimension, ExprError> {
        let (of, by) = (self.of(base)?, self.of(exponent)?);
        if !by.is_pure() {
            return Err(not_allowed(part, exponent, by, "be a pure number, as an exponent"));
        }
        let unit = match of {
            Dimension::Of(unit) if !unit.is_one() => unit,
            Dimension::Of(_) => return Ok(of),
            // A literal stays one only under a literal exponent: 2^x is no count.
            Dimension::Zero | Dimension::Literal => {
                return Ok(match by {
                    Dimension::Of(_) => Dimension::Of(Unit::ONE),
                    Dimension::Zero | Dimension::Literal => Dimension::Literal,
                });
            }
        };
        let literal = match exponent {
            Expr::Number(n) => Some(*n),
            Expr::Negative(inner) => match &**inner {
                Expr::Number(n) => Some(-n),
                _ => None,
            },
            _ => None,
        };
        match literal {
            Some(n) if n.fract() == 0.0 && n.abs() <= MAX_POWER => {
                #[expect(clippy::cast_possible_truncation, reason = "checked above")]
                let n = n as i8;
                Ok(Dimension::Of(unit.power(n)))
            }
            _ => {
                let must = "be a pure number unless the exponent is a whole literal from -8 to 8";
                Err(not_allowed(part, base, of, must))
            }
        }
    }

    fn call(
        &mut self,
        part: &Expr,
        function: Function,
        arguments: &'e [Expr],
    ) -> Result<Dimension, ExprError> {
        let Some((first, rest)) = arguments.split_first() else { return Ok(Dimension::Literal) };
        let mut is = self.of(first)?;
        let mut shown = first;
        for a in rest {
            let next = self.of(a)?;
            let joined = common((shown, is), (a, next), &|| part.to_string())?;
            // The error shows the argument that fixed the unit.
            if joined != is {
                shown = a;
            }
            is = joined;
        }
        match function {
            Function::Min | Function::Max => Ok(is),
            Function::Ceil | Function::Floor if is_countable(is) => Ok(is),
            Function::Ceil | Function::Floor => Err(not_allowed(
                part,
                first,
                is,
                "be a pure number or a count, since nothing else comes in whole units",
            )),
            Function::Exp | Function::Ln | Function::Fact if is.is_pure() => {
                Ok(Dimension::Of(Unit::ONE))
            }
            Function::Exp | Function::Ln | Function::Fact => {
                Err(not_allowed(part, first, is, "be a pure number"))
            }
            Function::Sqrt => match is {
                Dimension::Of(unit) => unit
                    .square_root()
                    .map(Dimension::Of)
                    .ok_or_else(|| not_allowed(part, first, is, "be the square of a unit")),
                Dimension::Zero | Dimension::Literal => Ok(is),
            },
        }
    }
}

fn is_countable(is: Dimension) -> bool {
    is.is_pure() || is.alone().is_count()
}

/// The unit of a product or quotient, in which literals are pure numbers.
fn product(a: Dimension, b: Dimension, join: fn(Unit, Unit) -> Unit) -> Dimension {
    match (a, b) {
        (Dimension::Of(_), _) | (_, Dimension::Of(_)) => Dimension::Of(join(a.alone(), b.alone())),
        _ => Dimension::Literal,
    }
}

/// The one unit of two parts that are added, compared or chosen between.
fn common(
    (left, a): (&Expr, Dimension),
    (right, b): (&Expr, Dimension),
    part: &dyn Fn() -> String,
) -> Result<Dimension, ExprError> {
    match (a, b) {
        (Dimension::Zero, other) | (other, Dimension::Zero) => Ok(other),
        (Dimension::Literal, Dimension::Literal) => Ok(Dimension::Literal),
        (Dimension::Literal, Dimension::Of(unit)) | (Dimension::Of(unit), Dimension::Literal)
            if unit.is_one() || unit.is_count() =>
        {
            Ok(Dimension::Of(unit))
        }
        (Dimension::Of(x), Dimension::Of(y)) if x == y => Ok(a),
        _ => Err(ExprError::UnitsDiffer {
            part: part(),
            left: left.to_string(),
            left_unit: a.describe(),
            right: right.to_string(),
            right_unit: b.describe(),
        }),
    }
}
