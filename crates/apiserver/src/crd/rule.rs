//! The part of the rule language that storage definitions use: comparisons, `has`, `size`, and their combinations over
//! `self` and `oldSelf`. What cannot be read is refused when the definition is written.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::Value;

/// A rule that was understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rule {
    /// Flat, because a chain may be as long as a definition, and a tree of it would be walked by recursion.
    Or(Vec<Rule>),
    And(Vec<Rule>),
    Not(Box<Rule>),
    Has(Path),
    Compare(Operand, Comparison, Operand),
    /// A boolean by itself.
    Holds(Operand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Path(Path),
    Size(Path),
    Literal(Value),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    of: Subject,
    fields: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    New,
    Old,
}

/// The values a rule is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subjects<'a> {
    pub(super) new: &'a Value,
    pub(super) old: Option<&'a Value>,
    /// Steps that rules may still take; at zero their answers count for nothing.
    pub(super) steps: &'a Cell<usize>,
}

impl Subjects<'_> {
    fn step(&self, count: usize) {
        self.steps.set(self.steps.get().saturating_sub(count));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Number(i64),
    Sign(&'static str),
}

const SIGNS: [&str; 15] = ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", ".", ",", "[", "]"];
/// Bytes of compared values that count as one step.
const STEP_BYTES: usize = 32;
/// Deeper rules are refused: they are read by recursion.
const DEPTH: usize = 64;

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_owned()));
                end
            }
            '0'..='9' | '-' => {
                let end = rest[1..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| end + 1);
                tokens.push(Token::Number(rest[..end].parse().ok()?));
                end
            }
            '\'' | '"' => {
                let end = rest[1..].find(first)? + 1;
                // An escape would need more of the language than is read here.
                if rest[1..end].contains('\\') {
                    return None;
                }
                tokens.push(Token::Text(rest[1..end].to_owned()));
                end + 1
            }
            _ => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
                tokens.push(Token::Sign(sign));
                sign.len()
            }
        };
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn eat(&mut self, sign: &'static str) -> Option<()> {
        (self.peek() == Some(&Token::Sign(sign))).then(|| self.at += 1)
    }

    fn either(&mut self) -> Option<Rule> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let first = self.both()?;
        let mut several = vec![first];
        while self.eat("||").is_some() {
            several.push(self.both()?);
        }
        self.depth -= 1;
        Some(if several.len() == 1 { several.swap_remove(0) } else { Rule::Or(several) })
    }

    fn both(&mut self) -> Option<Rule> {
        let first = self.one()?;
        let mut several = vec![first];
        while self.eat("&&").is_some() {
            several.push(self.one()?);
        }
        Some(if several.len() == 1 { several.swap_remove(0) } else { Rule::And(several) })
    }

    fn one(&mut self) -> Option<Rule> {
        if self.eat("!").is_some() {
            self.depth += 1;
            if self.depth > DEPTH {
                return None;
            }
            let rule = self.one()?;
            self.depth -= 1;
            return Some(Rule::Not(Box::new(rule)));
        }
        if self.eat("(").is_some() {
            let rule = self.either()?;
            self.eat(")")?;
            return Some(rule);
        }
        if self.peek() == Some(&Token::Word("has".to_owned())) {
            self.at += 1;
            self.eat("(")?;
            let path = self.path()?;
            self.eat(")")?;
            // `has(self)` has no meaning: only fields can be absent.
            return (!path.fields.is_empty()).then_some(Rule::Has(path));
        }
        let left = self.operand()?;
        match self.comparison() {
            Some(comparison) => Some(Rule::Compare(left, comparison, self.operand()?)),
            None => Some(Rule::Holds(left)),
        }
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let Some(Token::Sign(sign)) = self.peek() else { return None };
        let comparison = match *sign {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.at += 1;
        Some(comparison)
    }

    fn operand(&mut self) -> Option<Operand> {
        let literal = match self.peek()? {
            Token::Number(number) => Value::from(*number),
            Token::Text(text) => Value::from(text.as_str()),
            Token::Word(word) if word == "true" => Value::from(true),
            Token::Word(word) if word == "false" => Value::from(false),
            Token::Word(word) if word == "null" => Value::Null,
            Token::Word(word) if word == "size" => {
                self.at += 1;
                self.eat("(")?;
                let path = self.path()?;
                self.eat(")")?;
                return Some(Operand::Size(path));
            }
            Token::Word(_) => return self.path().map(Operand::Path),
            Token::Sign(_) => return None,
        };
        self.at += 1;
        Some(Operand::Literal(literal))
    }

    fn path(&mut self) -> Option<Path> {
        let of = match self.word()?.as_str() {
            "self" => Subject::New,
            "oldSelf" => Subject::Old,
            _ => return None,
        };
        let mut fields = Vec::new();
        while self.eat(".").is_some() {
            let word = self.word()?;
            // Words of the language are written with underscores around them.
            let plain = word.strip_prefix("__").and_then(|word| word.strip_suffix("__")).unwrap_or(&word);
            fields.push(plain.to_owned());
        }
        // A call is not a field.
        (self.peek() != Some(&Token::Sign("("))).then_some(Path { of, fields })
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }
}

impl Rule {
    /// None for what is outside the part of the language that is understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
        let rule = parser.either()?;
        (parser.at == parser.tokens.len()).then_some(rule)
    }

    /// Whether the rule compares with the old value; such a rule is about updates only.
    pub(super) fn is_about_change(&self) -> bool {
        let old = |path: &Path| path.of == Subject::Old;
        let operand = |operand: &Operand| match operand {
            Operand::Path(path) | Operand::Size(path) => old(path),
            Operand::Literal(_) => false,
        };
        match self {
            Self::Or(rules) | Self::And(rules) => rules.iter().any(Self::is_about_change),
            Self::Not(rule) => rule.is_about_change(),
            Self::Has(path) => old(path),
            Self::Compare(left, _, right) => operand(left) || operand(right),
            Self::Holds(value) => operand(value),
        }
    }

    pub(super) fn holds(&self, about: Subjects<'_>) -> bool {
        about.step(1);
        if about.steps.get() == 0 {
            return true;
        }
        match self {
            Self::Or(rules) => rules.iter().any(|rule| rule.holds(about)),
            Self::And(rules) => rules.iter().all(|rule| rule.holds(about)),
            Self::Not(rule) => !rule.holds(about),
            Self::Has(path) => path.find(about).is_some(),
            Self::Holds(operand) => operand.value(about).as_deref() == Some(&Value::Bool(true)),
            Self::Compare(left, comparison, right) => {
                let (left, right) = (left.value(about), right.value(about));
                // Two values are compared at the cost of the smaller one.
                let size = |value: &Option<Cow<'_, Value>>| value.as_deref().map_or(0, crate::patch::json::size);
                about.step(size(&left).min(size(&right)) / STEP_BYTES);
                match comparison {
                    Comparison::Equal => left == right,
                    Comparison::NotEqual => left != right,
                    ordered => {
                        match (left.as_deref().and_then(Value::as_f64), right.as_deref().and_then(Value::as_f64)) {
                            (Some(left), Some(right)) => ordered.holds(left, right),
                            // Without two numbers the rule cannot hold.
                            _ => false,
                        }
                    }
                }
            }
        }
    }
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

impl Path {
    fn find<'a>(&self, about: Subjects<'a>) -> Option<&'a Value> {
        let start = match self.of {
            Subject::New => about.new,
            Subject::Old => about.old?,
        };
        self.fields.iter().try_fold(start, |value, field| value.get(field)).filter(|value| !value.is_null())
    }
}

impl Operand {
    fn value<'a>(&'a self, about: Subjects<'a>) -> Option<Cow<'a, Value>> {
        match self {
            Self::Path(path) => path.find(about).map(Cow::Borrowed),
            Self::Literal(value) => Some(Cow::Borrowed(value)),
            Self::Size(path) => path.find(about).map(|value| {
                Cow::Owned(Value::from(match value {
                    Value::String(text) => {
                        about.step(text.len() / STEP_BYTES);
                        text.chars().count()
                    }
                    Value::Array(items) => items.len(),
                    Value::Object(fields) => fields.len(),
                    _ => 0,
                }))
            }),
        }
    }
}
