//! Commands about the server.

use super::{is, table};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::shared::unix_us;

/// TIME
pub(super) fn time(reply: &mut Reply) {
    let now_us = unix_us();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
}

/// FUNCTION FLUSH [ASYNC | SYNC]
pub(super) fn function_flush(arguments: Arguments<'_>, reply: &mut Reply) {
    match arguments.len() {
        2 => reply.ok(),
        3 if ["async", "sync"].iter().any(|mode| is(arguments.get(2), mode)) => reply.ok(),
        _ => reply.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
    }
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
