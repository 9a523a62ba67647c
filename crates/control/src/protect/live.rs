//! Objects as the server has them now, page by page.

use std::ops::ControlFlow;

use api::Object;
use runtime::Client;
use runtime::client::{Error, Selection};

const PAGE: u32 = 500;

/// Visits all objects of one state of the server, not older than this call. A page that expired meanwhile is an error:
/// the caller starts over.
pub(super) async fn each<T: Object>(
    client: &Client,
    selection: &Selection,
    mut visit: impl FnMut(T) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut next: Option<String> = None;
    loop {
        let page = client.list::<T>(T::KIND, selection, PAGE, next.as_deref()).await?;
        for object in page.items {
            if visit(object).is_break() {
                return Ok(());
            }
        }
        next = page.next;
        if next.is_none() {
            return Ok(());
        }
    }
}

/// The first object that `is` what is looked for.
pub(super) async fn find<T: Object>(client: &Client, is: impl Fn(&T) -> bool) -> Result<Option<T>, Error> {
    let mut found = None;
    let look = |object: T| match is(&object) {
        true => {
            found = Some(object);
            ControlFlow::Break(())
        }
        false => ControlFlow::Continue(()),
    };
    each(client, &Selection::default(), look).await?;
    Ok(found)
}
