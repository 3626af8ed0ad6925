//! Commands about the server.

use super::table;
use crate::reply::Reply;
use crate::shared::unix_us;

/// TIME
pub(super) fn time(reply: &mut Reply) {
    let now_us = unix_us();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
}

/// CLIENT HELP and its like, from the table.
pub(super) fn help(container: &str, reply: &mut Reply) {
    let id = table::find(container.as_bytes()).expect("a container is a command");
    let subcommands = table::COMMANDS[usize::from(id)].subcommands();
    reply.array(1 + 2 * subcommands.len());
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for command in subcommands {
        let (_, name) = command.name.split_once('|').expect("a subcommand's name has two parts");
        reply.simple(&name.to_uppercase());
        reply.simple(&format!("    {}", command.summary));
    }
}
