from ._find import Found as Found
from ._instance import (
    Instance as Instance,
    layout as layout,
    stage_in as stage_in,
    stage_out as stage_out,
    start as start,
    status as status,
    stop as stop,
)
from ._native import File as File, Session as Session, Stat as Stat
from ._program import MayflyError as MayflyError

__version__: str

def find(name: str | None = None) -> Found: ...
def attach(name: str | None = None) -> Session: ...
