//! How the pages are told apart in which provisioners note what they have begun: ConfigMaps with the label
//! [`label::INTENTS`](crate::keys::label::INTENTS).

/// What stands for one of several provisioners of one name in the label
/// [`label::INTENTS_INSTANCE`](crate::keys::label::INTENTS_INSTANCE) and in the names of its pages.
pub fn instance(name: &str) -> String {
    format!("{:016x}", hash(name))
}

/// FNV-1a, 64 bits.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_the_same_pages_after_every_upgrade() {
        assert_eq!(instance(""), "cbf29ce484222325");
        assert_eq!(instance("a"), "af63dc4c8601ec8c");
    }
}
