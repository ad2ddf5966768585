//! What every transport between nodes promises (`suite/`), as tests of this one; what strangers and
//! networks that lie cannot do to it (`tcp/hostile.rs`); what it costs (`tcp/measure.rs`).
//!
//! The suite knows a transport as [`contract::Network`]; another one is tested by a line as the
//! last ones here.

#[path = "tcp/calm.rs"]
mod calm;
#[path = "suite/claims.rs"]
mod claims;
#[path = "suite/contract.rs"]
mod contract;
#[path = "tcp/hostile.rs"]
mod hostile;
#[path = "tcp/measure.rs"]
mod measure;
#[path = "tcp/network.rs"]
mod network;
#[path = "tcp/proxy.rs"]
mod proxy;

/// Makes a test of each claim.
macro_rules! conforms {
    ($module:ident, $network:ty, [$($claim:ident,)*]) => {
        mod $module {
            $(#[test] fn $claim() { crate::claims::$claim::<$network>(); })*
        }
    };
    ($module:ident, $network:ty) => {
        conforms!($module, $network, [
            requests_of_a_class_arrive_in_order,
            replies_overtake_each_other,
            a_request_without_a_reply_is_lost_at_its_deadline,
            a_class_whose_receiver_takes_nothing_stops_and_no_other_does,
            who_was_refused_for_want_of_room_hears_when_there_is_some,
            a_small_message_does_not_stand_behind_bulk,
            a_cancelled_request_is_lost_or_its_server_hears_of_it,
            the_largest_message_arrives_whole_and_a_larger_one_is_refused,
            a_dead_node_loses_its_requests_and_no_others,
            a_half_open_connection_is_found_and_made_again,
            a_request_waits_for_a_node_that_is_not_there_yet,
            requests_are_executed_once_while_connections_are_cut,
            a_restarted_node_executes_nothing_that_was_sent_to_the_earlier_one,
            nodes_that_connect_to_each_other_at_the_same_time_both_get_through,
            many_senders_share_the_connections_of_a_pair,
        ]);
    };
}

conforms!(clear, crate::network::Tcp<false>);
conforms!(sealed, crate::network::Tcp<true>);
