"""Statistics and exports of access logs, and a controller trained on a trace."""

import json
import struct
import unittest

from program import SHIPPED_TRACE, ProgramTest

STEPS = 24


class AccessLogs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.succeed("run", "crosses", "--steps", STEPS, "--set", "warm_up_steps=0", "--access-log",
                    "--out", "runs")
        cls.rows = {row["system"]: row for row in
                    json.loads(cls.succeed("statistics", "runs", "--trace", SHIPPED_TRACE, "--json"))}

    def test_a_row_for_each_system(self):
        self.assertEqual(set(self.rows), {
            "dynakv", "cross_dynakv_fifo", "clusterkv", "cross_clusterkv_s3fifo_dual_head", "kvswap",
            "cross_kvswap_fp8"})
        table = self.succeed("statistics", "runs", "--by-layer").splitlines()
        self.assertEqual(len(table), 1 + 2 * len(self.rows))

    def test_the_same_index_has_the_same_groups(self):
        for name in ("key_variance", "reused_share", "selected_within_4"):
            self.assertEqual(self.rows["dynakv"][name], self.rows["cross_dynakv_fifo"][name])

    def test_orders(self):
        row = self.rows["dynakv"]
        self.assertGreater(row["key_variance"], 0)
        within = [row[f"selected_within_{n}"] for n in (1, 2, 4, 8, 16)]
        for shorter, longer in zip(within, within[1:]):
            # Averages over fewer updates: those whose later steps are known.
            self.assertLessEqual(shorter, longer + 0.05)
        self.assertLess(row["sequence_read_bytes"], row["grouped_read_bytes"])
        self.assertLess(row["grouped_read_bytes"], row["correlated_read_bytes"])
        self.assertIsNone(self.rows["kvswap"]["correlated_read_bytes"])

    def test_another_trace_is_refused(self):
        other = self.cut_trace("other.kvtrace.h5", 256, 8)
        self.refuses(["statistics", "runs", "--trace", other], ["trace_sha256", "other.kvtrace.h5"])

    def test_exported_accesses_link_to_the_next(self):
        log = f"runs/{SHIPPED_TRACE.name.removesuffix('.kvtrace.h5')}.clusterkv.access.h5"
        self.succeed("export-accesses", log, "accesses.bin", "--layer", 24)
        data = (self.folder / "accesses.bin").read_bytes()
        records = list(struct.iter_unpack("<IQIq", data))
        self.assertGreater(len(records), STEPS)
        self.assertEqual({step for step, *_ in records}, set(range(STEPS)))
        last = {}
        for number, (_, group, size, _) in enumerate(records):
            self.assertGreater(size, 0)
            if group in last:
                self.assertEqual(records[last[group]][3], number)
            last[group] = number
        for number in last.values():
            self.assertEqual(records[number][3], -1)
        self.succeed("export-accesses", log, "projected.bin", "--layer", 24, "--model",
                     "llama3.2-1b")
        self.assertGreater((self.folder / "projected.bin").stat().st_size, len(data))
        self.refuses(["export-accesses", log, "none.bin", "--layer", 7], ["layer 7", "12, 24"])

    def test_a_trained_controller_runs_and_is_reproducible(self):
        for name in ("one.json", "two.json"):
            said = self.succeed("train-controller", SHIPPED_TRACE, "--out", name, "--epochs", 3)
            self.assertIn("samples:", said)
        one = (self.folder / "one.json").read_bytes()
        self.assertEqual(one, (self.folder / "two.json").read_bytes())
        self.succeed("run", "all_systems", "--steps", 2, "--set", "system=dwb", "--set",
                     "warm_up_steps=0", "--set",
                     f"system.precision.file={self.folder / 'one.json'}", "--out", "dwb")
        self.refuses(["train-controller", SHIPPED_TRACE, "--out", "no.json", "--group-channels", 7],
                     ["--group-channels", "64"])


if __name__ == "__main__":
    unittest.main()
