//! Random names: secrets that stand for a session or a pool, and the name of a
//! gateway process.

use std::fmt;

/// A secret of 128 random bits. Whoever knows it speaks for what it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; Self::BYTES]);

impl Token {
    /// Bytes of a token.
    pub const BYTES: usize = 16;

    /// A new one, from the system's generator.
    pub fn random() -> Self {
        Self(random())
    }

    /// From the wire; `None` if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// For the wire.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Names a gateway process on every memory node: no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GatewayId(u128);

impl GatewayId {
    /// A new one.
    pub fn random() -> Self {
        Self(u128::from_le_bytes(random()))
    }

    /// From the wire; `None` if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(u128::from_le_bytes).map(Self)
    }

    /// For the wire.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for GatewayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell gateways apart in a log.
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("every system that we run on gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_show_itself() {
        let token = Token([0xab; 16]);
        let shown = format!("{token:?} {:?}", Some(token));
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
        assert_eq!(Token::from_bytes(token.bytes()), Some(token));
        assert_eq!(Token::from_bytes(&[1; 15]), None);
        assert_ne!(Token::random(), Token::random());
    }
}
