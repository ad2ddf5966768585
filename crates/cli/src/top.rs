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
use mayfly_deploy::Depth;
use mayfly_metrics::{Node, NodeRates, Rates, work::Place};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Clear, Paragraph, Row, Table},
};

use crate::{
    arguments::{
        self,
        values::{INTERVAL_MS_MAX, INTERVAL_MS_MIN},
    },
    metrics, size,
};

/// A key is noticed within that time, and so is what a look has found.
const PATIENCE: Duration = Duration::from_millis(50);
const KEYS: &str = " q end  Tab next table  s sort  + - interval  ? help";
const HELP: [&str; 15] = [
    "q, Esc, Ctrl-C   end",
    "Tab              operations, waits, processes, directories, files",
    "s                sort by rate, by total, by name",
    "+ -              look less or more often",
    "?                show or hide this",
    "",
    "op/s       what programs and mounts do, whether they ask or not",
    "unawaited  done by the daemon, and nobody waits",
    "asked      done by the daemon, which is asked",
    "p50 p99    half, and 99 of 100 answers come within this time",
    "busy       share of the time that a process's threads spend in",
    "           calls on the instance, all together",
    "share      of the latest operations, estimated from samples",
    "cpu        processors that Mayfly's own processes keep busy",
    "           (a table that is too long shows its first rows)",
];

/// Rows of each table without a screen.
const ROWS_ONCE: usize = 20;

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
    let nodes = metrics::nodes(&wanted.scope, Depth::Everything)?;
    Ok(Look { at: Instant::now(), nodes })
}

fn between(before: &Look, now: &Look) -> Rates {
    Rates::between(&before.nodes, &now.nodes, (now.at - before.at).as_secs_f64())
}

fn once(wanted: &arguments::Top) -> Result<()> {
    let before = look(wanted)?;
    thread::sleep(wanted.interval);
    let rates = between(&before, &look(wanted)?);
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&rates)?);
        return Ok(());
    }
    print(&NODE_COLUMNS, &rates.nodes.iter().map(node_cells).collect::<Vec<_>>());
    for shown in Shown::ALL {
        let (columns, mut rows) = shown.table(&rates, Order::Rate);
        rows.truncate(ROWS_ONCE);
        if !rows.is_empty() {
            println!();
            print(&columns, &rows);
        }
    }
    Ok(())
}

/// Looks again and again until nobody listens.
fn watch(wanted: &arguments::Top, interval: Arc<AtomicU64>) -> Receiver<Result<Look>> {
    let (sender, receiver) = sync_channel(1);
    let scope = wanted.scope.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(interval.load(Relaxed)));
            let nodes = metrics::nodes(&scope, Depth::Everything);
            let look = nodes.map(|nodes| Look { at: Instant::now(), nodes });
            if sender.send(look).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What is shown below the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Operations,
    Waits,
    Processes,
    Directories,
    Files,
}

impl Shown {
    const ALL: [Shown; 5] =
        [Shown::Operations, Shown::Waits, Shown::Processes, Shown::Directories, Shown::Files];

    fn next(self) -> Shown {
        let at = Shown::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Shown::ALL[(at + 1) % Shown::ALL.len()]
    }

    fn word(self) -> &'static str {
        match self {
            Shown::Operations => "operations",
            Shown::Waits => "waits",
            Shown::Processes => "processes",
            Shown::Directories => "directories",
            Shown::Files => "files",
        }
    }

    /// Columns, rows with the keys by which they are sorted.
    fn table(self, rates: &Rates, order: Order) -> (Vec<&'static str>, Vec<Vec<String>>) {
        match self {
            Shown::Operations => {
                let rows = rates.operations.iter().map(|row| {
                    let sorted = (row.per_second, row.total as f64, row.op.clone());
                    let cells = vec![
                        row.op.clone(),
                        rate(row.per_second),
                        rate(row.unawaited_per_second),
                        rate(row.asked_per_second),
                        row.total.to_string(),
                    ];
                    (sorted, cells)
                });
                let columns = vec!["operation", "op/s", "unawaited/s", "asked/s", "total"];
                (columns, order.sorted(rows.collect()))
            }
            Shown::Waits => {
                let rows = rates.waits.iter().map(|row| {
                    let sorted = (row.per_second, row.total as f64, row.op.clone());
                    let cells = vec![
                        row.op.clone(),
                        rate(row.per_second),
                        wait(row.p50_seconds),
                        wait(row.p99_seconds),
                        row.total.to_string(),
                    ];
                    (sorted, cells)
                });
                let columns = vec!["request", "waits/s", "p50", "p99", "total"];
                (columns, order.sorted(rows.collect()))
            }
            Shown::Processes => processes(rates, order),
            Shown::Directories => places("directory", &rates.directories, order),
            Shown::Files => places("file", &rates.files, order),
        }
    }
}

fn processes(rates: &Rates, order: Order) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let rows = rates.processes.iter().map(|row| {
        let sorted = (row.per_second, row.total as f64, row.program.clone());
        let cells = vec![
            row.pid.to_string(),
            row.node.to_string(),
            row.program.clone(),
            rate(row.per_second),
            bytes(row.read_bytes_per_second),
            bytes(row.written_bytes_per_second),
            format!("{:.0} %", 100.0 * row.busy),
            row.total.to_string(),
        ];
        (sorted, cells)
    });
    let columns = vec!["pid", "node", "program", "op/s", "read/s", "written/s", "busy", "total"];
    (columns, order.sorted(rows.collect()))
}

fn places(
    what: &'static str,
    places: &[Place],
    order: Order,
) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let all: u64 = places.iter().map(|place| place.operations).sum();
    let rows = places.iter().map(|place| {
        let share = 100.0 * place.operations as f64 / all.max(1) as f64;
        let moved = (place.read_bytes + place.written_bytes) as f64;
        let sorted = (place.operations as f64, moved, place.path.clone());
        let cells = vec![
            format!("{share:.0} %"),
            bytes(place.read_bytes as f64),
            bytes(place.written_bytes as f64),
            place.processes.to_string(),
            place.path.clone(),
        ];
        (sorted, cells)
    });
    (vec!["share", "read", "written", "processes", what], order.sorted(rows.collect()))
}

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Rate,
    Total,
    Name,
}

/// Rate, total and name of a row, with its cells.
type Sortable = ((f64, f64, String), Vec<String>);

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

    fn sorted(self, mut rows: Vec<Sortable>) -> Vec<Vec<String>> {
        rows.sort_by(|((rate, total, name), _), ((other_rate, other_total, other_name), _)| {
            let by_number = match self {
                Order::Rate => other_rate.total_cmp(rate),
                Order::Total => other_total.total_cmp(total),
                Order::Name => std::cmp::Ordering::Equal,
            };
            by_number.then_with(|| name.cmp(other_name))
        });
        rows.into_iter().map(|(_, cells)| cells).collect()
    }
}

const NODE_COLUMNS: [&str; 9] =
    ["instance", "node", "op/s", "read/s", "written/s", "p50", "p99", "used", "cpu"];

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

/// `1.5 ms`, and a line where nobody waited.
fn wait(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s >= 1.0 => format!("{s:.1} s"),
        Some(s) if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        Some(s) => format!("{:.0} us", s * 1e6),
    }
}

fn node_cells(node: &NodeRates) -> Vec<String> {
    let state = if node.serves { rate(node.operations_per_second) } else { "silent".to_owned() };
    vec![
        node.name.clone(),
        format!("{} {}", node.node, node.host),
        state,
        bytes(node.read_bytes_per_second),
        bytes(node.written_bytes_per_second),
        wait(node.wait_p50_seconds),
        wait(node.wait_p99_seconds),
        bytes(node.used_bytes),
        format!("{:.2}", node.processors),
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
    shown: Shown,
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
            shown: Shown::Operations,
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
            KeyCode::Tab => self.shown = self.shown.next(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('+') => self.interval.store((interval * 2).min(INTERVAL_MS_MAX), Relaxed),
            KeyCode::Char('-') => self.interval.store((interval / 2).max(INTERVAL_MS_MIN), Relaxed),
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
            "mayfly top: {count} nodes, {serve} serve; every {seconds} s, {} by {}",
            self.shown.word(),
            self.order.word()
        );
        frame.render_widget(Line::styled(title, bold), head);
        match &self.rates {
            Some(rates) => {
                let cells: Vec<_> = rates.nodes.iter().map(node_cells).collect();
                table(frame, nodes, &NODE_COLUMNS, cells);
                let (columns, cells) = self.shown.table(rates, self.order);
                table(frame, operations, &columns, cells);
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
            "work": {"operations": {"open": {"asked": opens}, "stat": {"itself": 7}}},
            "detail": {
                "by_process": [{
                    "pid": 77, "name": "tar", "lives": true,
                    "operations": {"open": {"asked": opens}},
                }],
                "latest": {"directories": [{"path": "/busy", "operations": 9}]},
            },
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
        let tab = KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE);
        for words in [&["waits/s"][..], &["77", "tar", "1200"], &["100 %", "/busy"]] {
            assert!(!screen.is_end(tab));
            let text = shown(&screen);
            assert!(words.iter().all(|word| text.contains(word)), "no {words:?}:\n{text}");
        }
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
