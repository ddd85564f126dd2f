"""Progress of long work, on standard error."""

from __future__ import annotations

from tqdm import tqdm


class Progress(tqdm):
    """A bar with the remaining time, as in the command (base/progress.hpp): on terminals only, once
    the work has taken two seconds, and removed at the end. `update(amount)` advances it."""

    monitor_interval = 0  # no thread beside the work

    def __init__(self, label: str, total: int) -> None:
        super().__init__(desc=label, total=max(total, 1), disable=None, delay=2, leave=False,
                         mininterval=0.2, miniters=1, ascii=".#",
                         bar_format="{desc} [{bar:30}] {percentage:3.0f}%  {remaining} left{postfix}")

    def begin(self, note: str) -> None:
        """Names the next piece of work."""
        if not self.disable:
            self.set_postfix_str(note, refresh=self._time() >= self.start_t + self.delay)
