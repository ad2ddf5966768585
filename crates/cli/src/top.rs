//! `mayfly top`: what instances do, on a screen.

use std::{
    io::IsTerminal,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use mayfly_metrics::{Node, NodeRates, OperationRates, Rates};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Clear, Paragraph, Row, Table},
};

use crate::{arguments, metrics, size};

/// Intervals between two looks, milliseconds.
const SHORTEST: u64 = 100;
const LONGEST: u64 = 60_000;
/// A key is noticed within that time, and so is what a look has found.
const PATIENCE: Duration = Duration::from_millis(50);
const KEYS: &str = " q end  s sort  + - interval  ? help";
const HELP: [&str; 9] = [
    "q, Esc, Ctrl-C   end",
    "s                sort operations by rate, by total, by name",
    "+ -              look less or more often",
    "?                show or hide this",
    "",
    "op/s   requests of programs and mounts, and creates and",
    "       removals that programs did not wait for",
    "nodes/s  answers to other nodes",
    "cpu    processors that Mayfly's own processes keep busy",
];

/// `--interval`.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let within = u128::from(SHORTEST)..=u128::from(LONGEST);
    if within.contains(&interval.as_millis()) {
        Ok(interval)
    } else {
        Err(format!("{SHORTEST} ms to {} s", LONGEST / 1000))
    }
}

pub(crate) fn top(wanted: &arguments::Top) -> Result<()> {
    if wanted.once || wanted.json || !std::io::stdout().is_terminal() {
        return once(wanted);
    }
    // An instance that is not there is told before the screen is taken.
    let first = look(wanted)?;
    let mut screen = Screen::new(wanted.interval, first);
    let looks = watch(wanted, Arc::clone(&screen.interval));
    let mut terminal = ratatui::init();
    let done = screen.run(&mut terminal, &looks);
    ratatui::restore();
    done
}

/// What the nodes say, and when.
struct Look {
    at: Instant,
    nodes: Vec<Node>,
}

fn look(wanted: &arguments::Top) -> Result<Look> {
    let nodes = metrics::nodes(wanted.name.as_deref(), wanted.all_nodes)?;
    Ok(Look { at: Instant::now(), nodes })
}

fn between(before: &Look, now: &Look) -> Rates {
    Rates::between(&before.nodes, &now.nodes, (now.at - before.at).as_secs_f64())
}

fn once(wanted: &arguments::Top) -> Result<()> {
    let before = look(wanted)?;
    thread::sleep(wanted.interval);
    let mut rates = between(&before, &look(wanted)?);
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&rates)?);
        return Ok(());
    }
    Order::Rate.sort(&mut rates.operations);
    print(&NODE_COLUMNS, &rates.nodes.iter().map(node_cells).collect::<Vec<_>>());
    println!();
    print(&OPERATION_COLUMNS, &rates.operations.iter().map(operation_cells).collect::<Vec<_>>());
    Ok(())
}

/// Looks again and again until nobody listens.
fn watch(wanted: &arguments::Top, interval: Arc<AtomicU64>) -> Receiver<Result<Look>> {
    let (sender, receiver) = sync_channel(1);
    let (name, all_nodes) = (wanted.name.clone(), wanted.all_nodes);
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(interval.load(Relaxed)));
            let nodes = metrics::nodes(name.as_deref(), all_nodes);
            let look = nodes.map(|nodes| Look { at: Instant::now(), nodes });
            if sender.send(look).is_err() {
                return;
            }
        }
    });
    receiver
}

/// By what operations are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Rate,
    Total,
    Name,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Rate => Order::Total,
            Order::Total => Order::Name,
            Order::Name => Order::Rate,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::Total => "total",
            Order::Name => "name",
        }
    }

    fn sort(self, operations: &mut [OperationRates]) {
        let key = |row: &OperationRates| match self {
            Order::Rate => row.per_second,
            Order::Total => row.total,
            Order::Name => 0.0,
        };
        operations.sort_by(|one, other| {
            key(other).total_cmp(&key(one)).then_with(|| one.op.cmp(&other.op))
        });
    }
}

const NODE_COLUMNS: [&str; 9] =
    ["instance", "node", "host", "op/s", "nodes/s", "refused/s", "used", "open", "cpu"];
const OPERATION_COLUMNS: [&str; 4] = ["operation", "op/s", "refused/s", "total"];

fn rate(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value if value == 0.0 || value >= 10.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn bytes(value: f64) -> String {
    size::show(value as u64)
}

fn node_cells(node: &NodeRates) -> Vec<String> {
    let state = if node.serves { rate(node.operations_per_second) } else { "silent".to_owned() };
    vec![
        node.name.clone(),
        node.node.to_string(),
        node.host.clone(),
        state,
        rate(node.answers_to_nodes_per_second),
        rate(node.refusals_per_second),
        bytes(node.used_bytes),
        rate(node.open_files),
        format!("{:.2}", node.processors),
    ]
}

fn operation_cells(row: &OperationRates) -> Vec<String> {
    vec![
        row.op.clone(),
        rate(row.per_second),
        rate(row.refusals_per_second),
        format!("{:.0}", row.total),
    ]
}

/// The widest cell of each column.
fn widths(columns: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |(at, column): (usize, &&str)| {
        rows.iter().map(|row| row[at].len()).max().unwrap_or(0).max(column.len())
    };
    columns.iter().enumerate().map(widest).collect()
}

fn print(columns: &[&str], rows: &[Vec<String>]) {
    let widths = widths(columns, rows);
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(columns.to_vec());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
}

/// What is shown.
struct Screen {
    last: Look,
    rates: Option<Rates>,
    order: Order,
    interval: Arc<AtomicU64>,
    help: bool,
    trouble: Option<String>,
}

impl Screen {
    fn new(interval: Duration, first: Look) -> Screen {
        let interval = interval.as_millis() as u64;
        Screen {
            last: first,
            rates: None,
            order: Order::Rate,
            interval: Arc::new(AtomicU64::new(interval)),
            help: false,
            trouble: None,
        }
    }

    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        looks: &Receiver<Result<Look>>,
    ) -> Result<()> {
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            // Nothing is drawn again before something has changed.
            loop {
                if let Ok(look) = looks.try_recv() {
                    self.take(look);
                    break;
                }
                if !event::poll(PATIENCE)? {
                    continue;
                }
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        if self.is_end(key) {
                            return Ok(());
                        }
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }

    fn take(&mut self, look: Result<Look>) {
        match look {
            Ok(look) => {
                self.rates = Some(between(&self.last, &look));
                self.last = look;
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    /// Does what a key means.
    fn is_end(&mut self, key: KeyEvent) -> bool {
        let interval = self.interval.load(Relaxed);
        match key.code {
            KeyCode::Char('c') => return key.modifiers.contains(KeyModifiers::CONTROL),
            KeyCode::Char('q') => return true,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => return true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('+') => self.interval.store((interval * 2).min(LONGEST), Relaxed),
            KeyCode::Char('-') => self.interval.store((interval / 2).max(SHORTEST), Relaxed),
            _ => {}
        }
        false
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let count = self.last.nodes.len();
        let node_rows = (count as u16).saturating_add(2).min(frame.area().height / 2);
        let rows = [
            Constraint::Length(1),
            Constraint::Length(node_rows),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, nodes, operations, foot] = Layout::vertical(rows).areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let serve = self.last.nodes.iter().filter(|node| node.serves()).count();
        let seconds = self.interval.load(Relaxed) as f64 / 1e3;
        let title = format!(
            "mayfly top: {count} nodes, {serve} serve; every {seconds} s, sorted by {}",
            self.order.word()
        );
        frame.render_widget(Line::styled(title, bold), head);
        match &self.rates {
            Some(rates) => {
                let cells: Vec<_> = rates.nodes.iter().map(node_cells).collect();
                table(frame, nodes, &NODE_COLUMNS, cells);
                let mut sorted = rates.operations.clone();
                self.order.sort(&mut sorted);
                let cells: Vec<_> = sorted.iter().map(operation_cells).collect();
                table(frame, operations, &OPERATION_COLUMNS, cells);
            }
            None => frame.render_widget(Line::from("counting"), nodes),
        }
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        let words = self.trouble.as_deref().unwrap_or(KEYS);
        frame.render_widget(Paragraph::new(words).style(reversed), foot);
        if self.help {
            help(frame);
        }
    }
}

fn table(frame: &mut Frame<'_>, area: Rect, columns: &[&str], cells: Vec<Vec<String>>) {
    let widths = widths(columns, &cells);
    let widths = widths.into_iter().map(|width| Constraint::Length(width as u16));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let header = Row::new(columns.iter().map(|column| (*column).to_owned())).style(bold);
    let rows = cells.into_iter().map(Row::new);
    frame.render_widget(Table::new(rows, widths).header(header).column_spacing(2), area);
}

fn help(frame: &mut Frame<'_>) {
    let whole = frame.area();
    let (width, height) = (62.min(whole.width), (HELP.len() as u16 + 2).min(whole.height));
    let (x, y) = ((whole.width - width) / 2, (whole.height - height) / 2);
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::json;

    use super::*;

    fn node(opens: u64) -> Node {
        let report = json!({
            "state": "serving", "used_bytes": 1 << 20, "capacity_bytes": 1 << 30,
            "activity": {"answers": {"open": opens, "stat": 7}},
        });
        Node { name: "work".to_owned(), node: 0, host: "n1".to_owned(), report: Some(report) }
    }

    fn shown(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("in memory");
        terminal.draw(|frame| screen.draw(frame)).expect("in memory");
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_of_80_by_24_shows_nodes_operations_and_keys() {
        let at = Instant::now();
        let mut screen = Screen::new(Duration::from_secs(2), Look { at, nodes: vec![node(0)] });
        assert!(shown(&screen).contains("counting"));
        let later = Look { at: at + Duration::from_secs(2), nodes: vec![node(2400)] };
        screen.take(Ok(later));
        let text = shown(&screen);
        for words in ["1 nodes, 1 serve", "1.0 MiB", "open", "1200", "q end"] {
            assert!(text.contains(words), "no {words:?}:\n{text}");
        }
        assert!(text.find("open  ").expect("a row") < text.find("stat").expect("a row"), "{text}");
    }

    #[test]
    fn keys_sort_slow_down_help_and_end() {
        let look = Look { at: Instant::now(), nodes: vec![node(0)] };
        let mut screen = Screen::new(Duration::from_secs(2), look);
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(!screen.is_end(key(KeyCode::Char('s'))) && screen.order == Order::Total);
        assert!(!screen.is_end(key(KeyCode::Char('+'))));
        assert_eq!(screen.interval.load(Relaxed), 4000);
        assert!(!screen.is_end(key(KeyCode::Char('?'))) && shown(&screen).contains("Keys"));
        assert!(!screen.is_end(key(KeyCode::Esc)) && !screen.help);
        assert!(screen.is_end(key(KeyCode::Char('q'))));
        assert!(screen.is_end(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        screen.take(Err(anyhow::anyhow!("gone")));
        assert!(shown(&screen).contains("gone"), "trouble is told on the last line");
    }
}
