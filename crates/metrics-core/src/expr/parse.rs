//! Text to tree, by recursive descent.

use super::{Comparison, Condition, Expr, ExprError, Function, Operator, Sum};

/// How deeply parentheses, functions, signs and powers may be nested.
///
/// It bounds the parser's recursion, so that no text can exhaust the stack.
pub const MAX_DEPTH: usize = 64;

/// How many numbers, names and operators a formula may have.
///
/// It bounds the depth of the tree, since `1 + 1 + …` nests once per term.
pub const MAX_TOKENS: usize = 512;

/// The tree of a formula's text.
///
/// # Errors
///
/// [`ExprError::Syntax`], [`ExprError::TooDeep`] or [`ExprError::TooLong`], each with a position.
///
/// # Examples
///
/// ```
/// use metrics_core::expr::parse;
///
/// assert_eq!(parse("a+b *2")?.to_string(), "a + b * 2");
/// assert_eq!(
///     parse("2 * (a + )").unwrap_err().to_string(),
///     "at character 10: found `)`, expected a number, a name, a function or `(`"
/// );
/// # Ok::<(), metrics_core::expr::ExprError>(())
/// ```
pub fn parse(text: &str) -> Result<Expr, ExprError> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let node = parser.expression()?;
    let value = parser.value(node)?;
    match parser.peek().kind {
        Kind::End => Ok(value),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

const KEYWORDS: [&str; 5] = ["if", "then", "else", "and", "or"];

/// Longest first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 14] =
    ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "^", "(", ")", ","];

#[derive(Clone, Copy)]
enum Kind<'t> {
    Number(f64),
    Word(&'t str),
    Symbol(&'static str),
    End,
}

#[derive(Clone, Copy)]
struct Token<'t> {
    kind: Kind<'t>,
    /// Byte offsets in the text.
    start: usize,
    end: usize,
}

/// The position of a byte offset in characters, counted from 1.
fn position(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(i, _)| *i < byte).count() + 1
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, ExprError> {
    let mut tokens = Vec::new();
    let mut start = 0;
    loop {
        let rest = &text[start..];
        let trimmed = rest.trim_start();
        start += rest.len() - trimmed.len();
        let Some(first) = trimmed.chars().next() else {
            tokens.push(Token { kind: Kind::End, start, end: start });
            return Ok(tokens);
        };
        if tokens.len() == MAX_TOKENS {
            return Err(ExprError::TooLong { at: position(text, start) });
        }
        let (kind, len) = if first.is_ascii_digit() {
            number(text, start)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let len = leading(trimmed, |b| b.is_ascii_alphanumeric() || b == b'_');
            (Kind::Word(&trimmed[..len]), len)
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|s| trimmed.starts_with(s)) {
            (Kind::Symbol(symbol), symbol.len())
        } else {
            return Err(ExprError::Syntax {
                at: position(text, start),
                found: format!("`{}`", first.escape_debug()),
                expected: match first {
                    '=' => "`==` for a comparison",
                    '.' => "a digit before the point",
                    '&' => "`and`",
                    '|' => "`or`",
                    '≤' => "`<=`",
                    '≥' => "`>=`",
                    '·' | '×' => "`*`",
                    _ => "a number, a name or an operator",
                }
                .to_string(),
            });
        };
        tokens.push(Token { kind, start, end: start + len });
        start += len;
    }
}

/// How many bytes at the start are ASCII and of this kind.
fn leading(text: &str, is: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|b| is(*b)).count()
}

/// The number at `start` and its length: digits, then a fraction, then an exponent.
fn number(text: &str, start: usize) -> Result<(Kind<'_>, usize), ExprError> {
    let rest = &text[start..];
    let digits = |from: usize| leading(&rest[from..], |b| b.is_ascii_digit());
    let wrong = |len: usize, expected: &str| ExprError::Syntax {
        at: position(text, start),
        found: format!("`{}`", &rest[..len]),
        expected: expected.to_string(),
    };
    let mut len = digits(0);
    if rest[len..].starts_with('.') {
        let fraction = digits(len + 1);
        if fraction == 0 {
            return Err(wrong(len + 1, "a digit after the point"));
        }
        len += 1 + fraction;
    }
    if rest[len..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[len + 1..].starts_with(['+', '-']));
        let exponent = digits(len + 1 + sign);
        if exponent == 0 {
            return Err(wrong(len + 1 + sign, "a whole exponent, as in `1e9`"));
        }
        len += 1 + sign + exponent;
    }
    match rest[..len].parse::<f64>() {
        Ok(x) if x.is_finite() => Ok((Kind::Number(x), len)),
        _ => Err(wrong(len, "a number below 1.8e308")),
    }
}

/// What a part of the text says: a value, or a condition that holds or does not.
///
/// `(a < b)` and `(a)` look alike until the comparison, so one grammar reads both and each place
/// asks for what it needs.
enum Said {
    Value(Expr),
    Truth(Condition),
}

struct Node {
    said: Said,
    /// Where it begins and ends, as indices of tokens.
    from: usize,
    to: usize,
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    next: usize,
    depth: usize,
}

const OPERAND: &str = "a number, a name, a function or `(`";

impl<'t> Parser<'t> {
    fn peek(&self) -> Token<'t> {
        let last = self.tokens.len() - 1;
        self.tokens[self.next.min(last)]
    }

    fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek().kind, Kind::Symbol(s) if s == symbol)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(self.peek().kind, Kind::Word(w) if w == word)
    }

    fn unexpected(&self, expected: &str) -> ExprError {
        let token = self.peek();
        let found = match token.kind {
            Kind::End => "the end".to_string(),
            _ => format!("`{}`", &self.text[token.start..token.end]),
        };
        self.syntax(token.start, found, expected)
    }

    fn syntax(&self, byte: usize, found: String, expected: &str) -> ExprError {
        ExprError::Syntax { at: position(self.text, byte), found, expected: expected.to_string() }
    }

    fn take_symbol(&mut self, symbol: &str, expected: &str) -> Result<(), ExprError> {
        if !self.at_symbol(symbol) {
            return Err(self.unexpected(expected));
        }
        self.next += 1;
        Ok(())
    }

    fn take_word(&mut self, word: &str) -> Result<(), ExprError> {
        if !self.at_word(word) {
            return Err(self.unexpected(&format!("an operator or `{word}`")));
        }
        self.next += 1;
        Ok(())
    }

    /// Runs a rule one level deeper.
    fn deeper<T>(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<T, ExprError>,
    ) -> Result<T, ExprError> {
        if self.depth == MAX_DEPTH {
            return Err(ExprError::TooDeep { at: position(self.text, self.peek().start) });
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    fn node(&self, from: usize, said: Said) -> Node {
        Node { said, from, to: self.next }
    }

    fn value(&self, node: Node) -> Result<Expr, ExprError> {
        match node.said {
            Said::Value(e) => Ok(e),
            Said::Truth(_) => Err(self.wrong_kind(node.from, node.to, "a value, not a condition")),
        }
    }

    fn truth(&self, node: Node) -> Result<Condition, ExprError> {
        match node.said {
            Said::Truth(c) => Ok(c),
            Said::Value(_) => {
                Err(self.wrong_kind(node.from, node.to, "a condition, as in `n <= 1`"))
            }
        }
    }

    /// The error for the part between two tokens that says a value for a condition or the reverse.
    fn wrong_kind(&self, from: usize, to: usize, expected: &str) -> ExprError {
        let start = self.tokens[from].start;
        let end = self.tokens[to.saturating_sub(1).max(from)].end;
        self.syntax(start, format!("`{}`", &self.text[start..end]), expected)
    }

    fn expression(&mut self) -> Result<Node, ExprError> {
        if self.at_word("if") { self.deeper(Self::choice) } else { self.any() }
    }

    fn full_value(&mut self) -> Result<Expr, ExprError> {
        let node = self.expression()?;
        self.value(node)
    }

    fn choice(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        self.take_word("if")?;
        let condition = self.expression()?;
        let condition = Box::new(self.truth(condition)?);
        self.take_word("then")?;
        let yes = Box::new(self.full_value()?);
        self.take_word("else")?;
        let no = Box::new(self.full_value()?);
        Ok(self.node(from, Said::Value(Expr::If(condition, yes, no))))
    }

    fn any(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        let mut left = self.all()?;
        while self.at_word("or") {
            let a = Box::new(self.truth(left)?);
            self.next += 1;
            let right = self.all()?;
            let b = Box::new(self.truth(right)?);
            left = self.node(from, Said::Truth(Condition::Or(a, b)));
        }
        Ok(left)
    }

    fn all(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        let mut left = self.comparison()?;
        while self.at_word("and") {
            let a = Box::new(self.truth(left)?);
            self.next += 1;
            let right = self.comparison()?;
            let b = Box::new(self.truth(right)?);
            left = self.node(from, Said::Truth(Condition::And(a, b)));
        }
        Ok(left)
    }

    fn comparison_sign(&self) -> Option<Comparison> {
        Comparison::ALL.into_iter().find(|c| self.at_symbol(c.text()))
    }

    fn comparison(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        let left = self.terms()?;
        let Some(comparison) = self.comparison_sign() else { return Ok(left) };
        let left = self.value(left)?;
        self.next += 1;
        let right = self.terms()?;
        let right = self.value(right)?;
        if self.comparison_sign().is_some() {
            return Err(self.unexpected("`and` between two comparisons"));
        }
        Ok(self.node(from, Said::Truth(Condition::Compare(comparison, left, right))))
    }

    /// The first of these operators that stands here.
    fn operator(&self, among: &[Operator]) -> Option<Operator> {
        among.iter().copied().find(|o| self.at_symbol(o.text()))
    }

    fn terms(&mut self) -> Result<Node, ExprError> {
        self.chain(&[Operator::Add, Operator::Subtract], Self::factors)
    }

    fn factors(&mut self) -> Result<Node, ExprError> {
        self.chain(&[Operator::Multiply, Operator::Divide], Self::signed)
    }

    /// Operands of one rank, joined from left to right.
    fn chain(
        &mut self,
        operators: &[Operator],
        operand: fn(&mut Self) -> Result<Node, ExprError>,
    ) -> Result<Node, ExprError> {
        let from = self.next;
        let mut left = operand(self)?;
        while let Some(op) = self.operator(operators) {
            let a = Box::new(self.value(left)?);
            self.next += 1;
            let right = operand(self)?;
            let b = Box::new(self.value(right)?);
            left = self.node(from, Said::Value(Expr::Binary(op, a, b)));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        if !self.at_symbol("-") {
            return self.power();
        }
        self.next += 1;
        let operand = self.deeper(Self::signed)?;
        let operand = Box::new(self.value(operand)?);
        Ok(self.node(from, Said::Value(Expr::Negative(operand))))
    }

    fn power(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        let base = self.primary()?;
        if !self.at_symbol("^") {
            return Ok(base);
        }
        let base = Box::new(self.value(base)?);
        self.next += 1;
        let exponent = self.deeper(Self::signed)?;
        let exponent = Box::new(self.value(exponent)?);
        Ok(self.node(from, Said::Value(Expr::Binary(Operator::Power, base, exponent))))
    }

    fn primary(&mut self) -> Result<Node, ExprError> {
        let from = self.next;
        let token = self.peek();
        match token.kind {
            Kind::Number(x) => {
                self.next += 1;
                if matches!(self.peek().kind, Kind::Number(_) | Kind::Word(_))
                    && self.peek().start == token.end
                {
                    return Err(self.unexpected("an operator, as in `2 * x`"));
                }
                Ok(self.node(from, Said::Value(Expr::Number(x))))
            }
            Kind::Word("if") => {
                Err(self.unexpected("parentheses around an `if` that is an operand"))
            }
            Kind::Word(word) if KEYWORDS.contains(&word) => Err(self.unexpected(OPERAND)),
            Kind::Word(word) => {
                self.next += 1;
                let e = self.named(word, token)?;
                Ok(self.node(from, Said::Value(e)))
            }
            Kind::Symbol("(") => {
                self.next += 1;
                let inside = self.deeper(Self::expression)?;
                self.take_symbol(")", "an operator or `)`")?;
                Ok(self.node(from, inside.said))
            }
            Kind::Symbol(_) | Kind::End => Err(self.unexpected(OPERAND)),
        }
    }

    /// A name or a call, after its first word.
    fn named(&mut self, word: &str, token: Token<'_>) -> Result<Expr, ExprError> {
        let function = Function::ALL.into_iter().find(|f| f.text() == word);
        if !self.at_symbol("(") {
            return match function {
                None if word != "sum" => Ok(Expr::Name(word.to_string())),
                _ => Err(self.unexpected(&format!("`(` after the function `{word}`"))),
            };
        }
        if function.is_none() && word != "sum" {
            let known: Vec<&str> = Function::ALL.into_iter().map(Function::text).collect();
            let expected = format!("one of the functions {}, sum", known.join(", "));
            return Err(self.syntax(token.start, format!("`{word}(`"), &expected));
        }
        self.next += 1;
        match function {
            Some(function) => self.deeper(|p| p.arguments(function)),
            None => self.deeper(Self::sum),
        }
    }

    fn arguments(&mut self, function: Function) -> Result<Expr, ExprError> {
        let mut arguments = vec![self.full_value()?];
        while function.takes_many() && self.at_symbol(",") {
            self.next += 1;
            arguments.push(self.full_value()?);
        }
        if function.takes_many() && arguments.len() < 2 {
            return Err(self.unexpected("`,` and a second argument"));
        }
        let expected = if function.takes_many() {
            "an operator, `,` or `)`"
        } else {
            "an operator or `)`: the function takes one argument"
        };
        self.take_symbol(")", expected)?;
        Ok(Expr::Call(function, arguments))
    }

    fn sum(&mut self) -> Result<Expr, ExprError> {
        let index = match self.peek().kind {
            Kind::Word(word) if is_free(word) => word.to_string(),
            _ => return Err(self.unexpected("the name of the index, as in `sum(k, 0, n, …)`")),
        };
        self.next += 1;
        let comma = "`,`: a sum is written `sum(k, lo, hi, body)`";
        self.take_symbol(",", comma)?;
        let low = self.full_value()?;
        self.take_symbol(",", comma)?;
        let high = self.full_value()?;
        self.take_symbol(",", comma)?;
        let body = self.full_value()?;
        self.take_symbol(")", "an operator or `)`: a sum is written `sum(k, lo, hi, body)`")?;
        Ok(Expr::Sum(Box::new(Sum { index, low, high, body })))
    }
}

/// Whether a word may be a name, being neither keyword nor function.
fn is_free(word: &str) -> bool {
    !KEYWORDS.contains(&word)
        && word != "sum"
        && Function::ALL.into_iter().all(|f| f.text() != word)
}
