//! Label selectors: the grammar of `-l`, its exact complaints, and matching.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::go_text::go_quote;
use super::label_names::{label_key_problems, label_value_problems};
use super::refusal::aggregate;

/// Requirements and terms of one selector. Each is held against every object that a list looks at.
pub(super) const MOST_REQUIREMENTS: usize = 1_000;

pub(super) fn too_long(count: usize) -> String {
    format!("the selector has {count} different requirements: at most {MOST_REQUIREMENTS} are allowed")
}

/// Requirements that must all hold, by key. Without any, everything matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: LabelOperator,
    /// None for the two questions of existence, one for comparisons, any number of at least one for sets.
    pub values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelOperator {
    Exists,
    DoesNotExist,
    Equals,
    NotEquals,
    In,
    NotIn,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// The error is the whole text of the 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Parser { tokens: scan(text.as_bytes()), position: 0 }.selector()?;
        requirements.sort_unstable();
        requirements.dedup();
        match requirements.len() {
            count if count > MOST_REQUIREMENTS => Err(too_long(count)),
            _ => Ok(Self { requirements }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether labels looked up by `label` satisfy every requirement.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }

    /// Whether `metadata.labels` of an object satisfy every requirement.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl LabelRequirement {
    fn holds(&self, actual: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|value| number(value));
        match (self.operator, actual) {
            (LabelOperator::Exists, actual) => actual.is_some(),
            (LabelOperator::DoesNotExist, actual) => actual.is_none(),
            (LabelOperator::Equals | LabelOperator::In, actual) => actual.is_some_and(|it| self.values.contains(it)),
            (LabelOperator::NotEquals | LabelOperator::NotIn, actual) => {
                !actual.is_some_and(|it| self.values.contains(it))
            }
            // A label that is no number is neither greater nor less than one.
            (LabelOperator::GreaterThan, actual) => actual.and_then(number).zip(bound()).is_some_and(|(a, b)| a > b),
            (LabelOperator::LessThan, actual) => actual.and_then(number).zip(bound()).is_some_and(|(a, b)| a < b),
        }
    }

    fn check(self) -> Result<Self, String> {
        let mut errors = Vec::new();
        let ordered = matches!(self.operator, LabelOperator::GreaterThan | LabelOperator::LessThan);
        for (index, value) in self.values.iter().enumerate() {
            if ordered && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(format!("values[{index}]: Invalid value: {}: {why}", go_quote(value)));
            }
        }
        for (index, value) in self.values.iter().enumerate() {
            let problems = label_value_problems(value);
            if !problems.is_empty() {
                let value = go_quote(value);
                errors.push(format!("values[{index}][{}]: Invalid value: {value}: {}", self.key, problems.join("; ")));
            }
        }
        if errors.is_empty() { Ok(self) } else { Err(aggregate(errors)) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    End,
    Word(String),
    In,
    NotIn,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::End => "",
            Self::Word(word) => word,
            Self::In => "in",
            Self::NotIn => "notin",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
        })
    }
}

/// Ends with exactly one [`Token::End`]. A NUL byte directly after a token is dropped; anywhere else it ends the text.
fn scan(text: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        while let [b' ' | b'\t' | b'\r' | b'\n', tail @ ..] = rest {
            rest = tail;
        }
        let (token, tail) = match rest {
            [] | [0, ..] => {
                tokens.push(Token::End);
                return tokens;
            }
            [b'=', b'=', tail @ ..] => (Token::DoubleEquals, tail),
            [b'!', b'=', tail @ ..] => (Token::NotEquals, tail),
            [b'=', tail @ ..] => (Token::Equals, tail),
            [b'!', tail @ ..] => (Token::Not, tail),
            [b'(', tail @ ..] => (Token::Open, tail),
            [b')', tail @ ..] => (Token::Close, tail),
            [b',', tail @ ..] => (Token::Comma, tail),
            [b'>', tail @ ..] => (Token::Greater, tail),
            [b'<', tail @ ..] => (Token::Less, tail),
            _ => word(rest),
        };
        tokens.push(token);
        rest = tail.strip_prefix(&[0]).unwrap_or(tail);
    }
}

fn word(rest: &[u8]) -> (Token, &[u8]) {
    let ends =
        |byte: &u8| matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<' | b' ' | b'\t' | b'\r' | b'\n' | 0);
    let (word, tail) = rest.split_at(rest.iter().position(ends).unwrap_or(rest.len()));
    let token = match word {
        b"in" => Token::In,
        b"notin" => Token::NotIn,
        other => Token::Word(String::from_utf8_lossy(other).into_owned()),
    };
    (token, tail)
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    /// `in` and `notin` are operators only where one is expected: `in in (notin)` is a fine requirement.
    fn word_of(token: &Token) -> Option<String> {
        match token {
            Token::Word(_) | Token::In | Token::NotIn => Some(token.to_string()),
            _ => None,
        }
    }

    fn selector(mut self) -> Result<Vec<LabelRequirement>, String> {
        let starts = |token: &Token| *token == Token::Not || Self::word_of(token).is_some();
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(requirements),
                token if starts(&token) => {}
                token => return Err(format!("found '{token}', expected: !, identifier, or 'end of string'")),
            }
            let requirement = self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match self.take() {
                Token::End => return Ok(requirements),
                Token::Comma if starts(&self.peek()) => {}
                Token::Comma => return Err(format!("found '{}', expected: identifier after ','", self.peek())),
                token => return Err(format!("found '{token}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut token = self.take();
        let negated = token == Token::Not;
        if negated {
            token = self.take();
        }
        let key = Self::word_of(&token).ok_or_else(|| format!("found '{token}', expected: identifier"))?;
        let problems = label_key_problems(&key);
        if !problems.is_empty() {
            return Err(format!("<nil>: Invalid value: {}: {}", go_quote(&key), problems.join("; ")));
        }
        let none = BTreeSet::new();
        if negated {
            return Ok(LabelRequirement { key, operator: LabelOperator::DoesNotExist, values: none });
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(LabelRequirement { key, operator: LabelOperator::Exists, values: none });
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.set()?,
            _ => self.exact()?,
        };
        LabelRequirement { key, operator, values }.check()
    }

    fn operator(&mut self) -> Result<LabelOperator, String> {
        Ok(match self.take() {
            Token::In => LabelOperator::In,
            Token::NotIn => LabelOperator::NotIn,
            Token::Equals | Token::DoubleEquals => LabelOperator::Equals,
            Token::NotEquals => LabelOperator::NotEquals,
            Token::Greater => LabelOperator::GreaterThan,
            Token::Less => LabelOperator::LessThan,
            token => return Err(format!("found '{token}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        let token = self.take();
        let value = Self::word_of(&token).ok_or_else(|| format!("found '{token}', expected: identifier"))?;
        Ok(BTreeSet::from([value]))
    }

    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        match self.take() {
            Token::Open => {}
            token => return Err(format!("found '{token}' expected: '('")),
        }
        match self.peek() {
            Token::Close => {
                self.take();
                return Ok(BTreeSet::from([String::new()]));
            }
            Token::Comma => {}
            token if Self::word_of(&token).is_some() => {}
            token => return Err(format!("found '{token}', expected: ',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            if let Some(value) = Self::word_of(&token) {
                values.insert(value);
                match self.peek() {
                    Token::Comma => {}
                    Token::Close => break,
                    token => return Err(format!("found '{token}', expected: ',' or ')'")),
                }
            } else if token == Token::Comma {
                // A place without a word between commas or brackets is the empty string.
                if values.is_empty() || matches!(self.peek(), Token::Close | Token::Comma) {
                    values.insert(String::new());
                }
                if self.peek() == Token::Close {
                    break;
                }
            } else {
                return Err(format!("found '{token}', expected: ',', or identifier"));
            }
        }
        self.take();
        Ok(values)
    }
}
