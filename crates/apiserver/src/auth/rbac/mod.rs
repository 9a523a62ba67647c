//! Role-based access control over the Role, ClusterRole, RoleBinding and ClusterRoleBinding objects themselves.

mod index;
mod rule;

pub use index::{Rbac, RbacKind};
pub(in crate::auth) use index::{RoleRef, Unresolved};
pub use rule::PolicyRule;
