#include "policies/place/place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "policies/place/access_export.hpp"
#include "policies/place/io_plan_bytes.hpp"
#include "tests/support/log_builder.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlaceSpec parse(const std::string& cache, const std::string& layout) {
  return PlaceSpec::parse(ConfigNode::parse(
      R"({"cache": )" + cache + R"(, "layout": {"part": ")" + layout + R"("}})", "system.json"));
}

KvShape recorded_shape(const AccessLog& log) {
  return {std::ssize(log.layers), log.query_heads, log.kv_heads, log.head_dim};
}

std::vector<Extent> reads_at(const LayerPlan& plan, std::int64_t step) {
  const auto reads = plan.io.reads_at(step);
  return {reads.begin(), reads.end()};
}
std::vector<Extent> writes_at(const LayerPlan& plan, std::int64_t step) {
  const auto writes = plan.io.writes_at(step);
  return {writes.begin(), writes.end()};
}

/// The number of groups that each step requests of a layer's cache.
std::vector<std::int64_t> requested_groups(const AccessLog& log, const KvShape& target) {
  std::vector<std::int64_t> count(static_cast<std::size_t>(log.steps));
  for (const TimedAccess& timed : access_sequence(log, 0, target)) {
    ++count[static_cast<std::size_t>(timed.step)];
  }
  return count;
}

/// One KV head of 4 dimensions: an entry is 16 bytes.
AccessLog small_log() {
  StreamLog stream = StreamBuilder()
                         .create({0, 2})
                         .create({1, 3})
                         .request({0, 1}, 5)
                         .cost(100, 10, 1000)
                         .buffer({4})
                         .request({0}, 4)
                         .cost(120, 12, 1200)
                         .append(0, {4})
                         .buffer({5})
                         .request({0}, 4)
                         .cost(90, 9, 900)
                         .load(1)
                         .log();
  std::vector<StreamLog> streams;
  streams.push_back(std::move(stream));
  return make_log(std::move(streams), 1, 1, 4, 4);
}

TEST(Place, WithoutACacheEveryStepReadsWhatItAsksFor) {
  const AccessLog log = small_log();
  const IoPlan plan = place(log, parse(R"({"part": "none"})", "sequence"), recorded_shape(log));
  ASSERT_EQ(plan.layers.size(), 1u);
  const LayerPlan& layer = plan.layers[0];
  EXPECT_THAT(layer.accounting.requested_bytes, ElementsAre(64, 32, 80));
  EXPECT_THAT(layer.accounting.missed_bytes, ElementsAre(64, 32, 80));
  EXPECT_THAT(layer.accounting.hit_bytes, ElementsAre(0, 0, 0));
  EXPECT_THAT(requested_groups(log, recorded_shape(log)), ElementsAre(2, 1, 2));
  EXPECT_THAT(reads_at(layer, 0), ElementsAre(Extent{0, 64}));
  EXPECT_THAT(reads_at(layer, 1), ElementsAre(Extent{0, 16}, Extent{32, 16}));
  // Tokens 0, 2 and 4 are requested, and 1 and 3 are loaded: one range.
  EXPECT_THAT(reads_at(layer, 2), ElementsAre(Extent{0, 80}));
  EXPECT_THAT(writes_at(layer, 0), IsEmpty());
  EXPECT_THAT(writes_at(layer, 1), ElementsAre(Extent{64, 16}));
  EXPECT_EQ(layer.io.prompt_write_bytes, 64u);
  EXPECT_THAT(layer.io.prompt_writes, ElementsAre(Extent{0, 64}));
  EXPECT_THAT(layer.io.prompt_ready, ElementsAre(4));
  EXPECT_EQ(layer.io.region_bytes, 7u * 16);
  EXPECT_EQ(layer.dram.entries_bytes, 7 * 16);
  EXPECT_EQ(layer.dram.cache_bytes, 0);
  EXPECT_EQ(layer.dram.buffered_bytes, 3 * 16);  // tokens 5 and 6, and a step's own before it ends
  EXPECT_EQ(layer.dram.fetched_bytes, 80);
  EXPECT_EQ(layer.dram.index_bytes, 120);
  EXPECT_THAT(layer.compute.score_bytes, ElementsAre(10, 12, 9));
  EXPECT_THAT(layer.compute.score_flops, ElementsAre(1000, 1200, 900));
  EXPECT_THAT(layer.compute.attended_tokens, ElementsAre(5, 4, 4));
  EXPECT_THAT(layer.compute.fetched_entries, ElementsAre(4, 2, 5));
  EXPECT_THAT(layer.compute.decoded_entries, ElementsAre(4, 2, 5));
  EXPECT_THAT(layer.compute.regrouped_entries, ElementsAre(0, 0, 0)) << "an append makes no group";
}

TEST(Place, NamesThePartsThatDecided) {
  AccessLog log = small_log();
  EXPECT_EQ(place(log, parse(R"({"part": "none"})", "sequence"), recorded_shape(log)).scoring, "");
  log.decide_config = R"({"stream": {"query": "look_ahead"}, "grouping": {"part": "page"},
                          "scoring": {"part": "centroid"}, "precision": {"part": "fp8"}})";
  const IoPlan plan = place(log, parse(R"({"part": "none"})", "sequence"), recorded_shape(log));
  EXPECT_EQ(plan.grouping, "page");
  EXPECT_EQ(plan.scoring, "centroid");
  EXPECT_EQ(plan.precision, "fp8");
  EXPECT_TRUE(plan.looks_ahead);
  EXPECT_FALSE(plan.heads_select_alone);
}

TEST(Place, ReadsThatAreNotMergedAreThoseOfTheGroups) {
  const AccessLog log = small_log();
  const PlaceSpec spec = PlaceSpec::parse(ConfigNode::parse(
      R"({"cache": {"part": "none"}, "layout": {"part": "sequence", "merge_reads": false}})",
      "system.json"));
  const IoPlan plan = place(log, spec, recorded_shape(log));
  const LayerPlan& layer = plan.layers[0];
  EXPECT_FALSE(layer.io.merge_reads);
  EXPECT_THAT(layer.accounting.missed_bytes, ElementsAre(64, 32, 80));
  EXPECT_THAT(reads_at(layer, 0),
              ElementsAre(Extent{0, 16}, Extent{16, 16}, Extent{32, 16}, Extent{48, 16}));
  EXPECT_THAT(reads_at(layer, 1), ElementsAre(Extent{0, 16}, Extent{32, 16}));
  EXPECT_THAT(writes_at(layer, 1), ElementsAre(Extent{64, 16}));
  // Neighbouring tokens that are groups of their own are read one by one.
  std::vector<StreamLog> tokens;
  tokens.push_back(
      StreamBuilder().create({0}).create({1}).create({2}).create({3, 4}).request({0, 1, 3}).log());
  const AccessLog single = make_log(std::move(tokens), 1, 1, 4, 5);
  EXPECT_THAT(reads_at(place(single, spec, recorded_shape(single)).layers[0], 0),
              ElementsAre(Extent{0, 16}, Extent{16, 16}, Extent{48, 32}));

  const IoPlan back = plan_from(to_bytes(plan));
  EXPECT_FALSE(back.layers[0].io.merge_reads);
  EXPECT_EQ(back.layers[0].io.reads, layer.io.reads);
}

TEST(Place, EveryLayoutSaysWhetherItsReadsAreMerged) {
  for (const auto& [key, part] : part_catalogue()) {
    if (key.first != Layout::kRole) continue;
    EXPECT_TRUE(PartConfig<Layout>::by_name(key.second).arguments().flag("merge_reads"))
        << key.second;
  }
}

TEST(Place, ACacheKeepsWhatGrows) {
  const AccessLog log = small_log();
  const LayerPlan layer =
      place(log, parse(R"({"part": "lru", "capacity_groups": 2})", "grouped"), recorded_shape(log))
          .layers[0];
  EXPECT_THAT(layer.accounting.hit_bytes, ElementsAre(0, 32, 80));
  EXPECT_THAT(layer.accounting.missed_bytes, ElementsAre(64, 0, 0));
  EXPECT_THAT(reads_at(layer, 0), ElementsAre(Extent{0, 64}));
  EXPECT_THAT(reads_at(layer, 2), IsEmpty());
  EXPECT_THAT(writes_at(layer, 1), ElementsAre(Extent{64, 16}));
  EXPECT_EQ(layer.dram.cache_bytes, 80);
}

TEST(Place, WhatAStepHasInHandIsNotReadAgain) {
  std::vector<StreamLog> streams;
  streams.push_back(StreamBuilder()
                        .create({0, 1})
                        .create({2, 3})
                        .request({0})
                        .load(0)
                        .load(1)
                        .load(1)
                        .split(1, {3})
                        .load(2)
                        .create({4})
                        .load(3)
                        .log());
  const AccessLog log = make_log(std::move(streams), 1, 1, 4, 4);
  const LayerPlan layer =
      place(log, parse(R"({"part": "none"})", "grouped"), recorded_shape(log)).layers[0];
  EXPECT_THAT(requested_groups(log, recorded_shape(log)), ElementsAre(2));
  EXPECT_THAT(layer.accounting.missed_bytes, ElementsAre(64));
}

TEST(Place, WhatALayoutMovesIsReadToo) {
  const AccessLog log = small_log();
  const LayerPlan layer =
      place(log, parse(R"({"part": "lru", "capacity_groups": 2})", "packed"), recorded_shape(log))
          .layers[0];
  EXPECT_THAT(layer.accounting.missed_bytes, ElementsAre(64, 0, 0));
  EXPECT_THAT(layer.accounting.moved_bytes, ElementsAre(0, 32, 0));
  EXPECT_THAT(reads_at(layer, 1), ElementsAre(Extent{32, 32}));
  EXPECT_THAT(writes_at(layer, 1), ElementsAre(Extent{32, 48}));
}

TEST(Place, ACacheThatIsPagedIsReadForEachStep) {
  const AccessLog log = small_log();
  const LayerPlan layer =
      place(log,
            parse(R"({"part": "lru", "capacity_groups": 2, "paged_by_layer": true})", "grouped"),
            recorded_shape(log))
          .layers[0];
  EXPECT_TRUE(layer.io.cache_paged);
  const auto cache_reads = [&](std::int64_t step) {
    const auto reads = layer.io.cache_reads_at(step);
    return std::vector<Extent>(reads.begin(), reads.end());
  };
  EXPECT_THAT(cache_reads(0), IsEmpty());
  EXPECT_THAT(cache_reads(1), ElementsAre(Extent{0, 64}));
  EXPECT_THAT(cache_reads(2), ElementsAre(Extent{0, 80})) << "token 4 has joined group 0";
  EXPECT_THAT(layer.accounting.hit_bytes, ElementsAre(0, 32, 80))
      << "what is read for the cache is a hit";
  EXPECT_EQ(layer.io.live_bytes, 80u);
  const LayerPlan kept =
      place(log, parse(R"({"part": "lru", "capacity_groups": 2})", "grouped"), recorded_shape(log))
          .layers[0];
  EXPECT_FALSE(kept.io.cache_paged);
  EXPECT_THAT(kept.io.cache_reads_at(2), IsEmpty());
}

TEST(Place, ALayoutIsToldWhatThePromptsLastQueriesSelect) {
  std::vector<StreamLog> streams;
  streams.push_back(
      StreamBuilder().create({0}).create({1}).create({2}).create({3}).request({0, 3}).log());
  streams.back().window_requested = {0, 3, 0, 3, 1, 2};
  streams.back().window_begin = {0, 2, 4, 6};
  const AccessLog log = make_log(std::move(streams), 1, 1, 4, 4);
  const auto reads_of = [&](const std::string& layout) {
    return reads_at(place(log, parse(R"({"part": "none"})", layout), recorded_shape(log)).layers[0],
                    0);
  };
  EXPECT_THAT(reads_of("grouped"), ElementsAre(Extent{0, 16}, Extent{48, 16}));
  EXPECT_THAT(reads_of("correlated"), ElementsAre(Extent{0, 32}));
}

TEST(Place, InMemoryNothingIsReadOrWritten) {
  const AccessLog log = small_log();
  const PlaceSpec spec =
      PlaceSpec::parse(ConfigNode::parse(R"({"cache": {"part": "resident"}})", "system.json"));
  const LayerPlan layer = place(log, spec, recorded_shape(log)).layers[0];
  EXPECT_TRUE(layer.io.reads.empty());
  EXPECT_TRUE(layer.io.writes.empty());
  EXPECT_EQ(layer.io.read_begin.size(), 4u);
  EXPECT_EQ(layer.io.prompt_write_bytes, 0u);
  EXPECT_EQ(layer.io.region_bytes, 0u);
  EXPECT_EQ(layer.accounting.requested_bytes, layer.accounting.hit_bytes);
  EXPECT_EQ(layer.dram.cache_bytes, 80);
  EXPECT_THAT(layer.compute.fetched_entries, ElementsAre(0, 0, 0));
  EXPECT_THAT(layer.compute.decoded_entries, ElementsAre(0, 0, 0));
  EXPECT_THAT(layer.compute.buffered_entries, ElementsAre(0, 0, 0));
}

TEST(Place, ALayerWithFullAttentionIsInMemory) {
  AccessLog log = small_log();
  log.layers[0].full_attention = true;
  log.layers[0].streams.clear();
  const LayerPlan layer =
      place(log, parse(R"({"part": "none"})", "sequence"), recorded_shape(log)).layers[0];
  EXPECT_TRUE(layer.full_attention);
  EXPECT_EQ(layer.dram.entries_bytes, 7 * 16);
  EXPECT_THAT(layer.compute.attended_tokens, ElementsAre(5, 6, 7));
  EXPECT_EQ(layer.accounting.requested_bytes.size(), 3u);
  EXPECT_EQ(layer.io.reads_at(2).size(), 0u);
}

TEST(Place, ProjectsHeadsOneByOne) {
  // 2 KV heads with 3 query heads each, of 4 dimensions; the target has 8 with 2, of 16.
  std::vector<StreamLog> streams;
  streams.push_back(StreamBuilder(1, 3).create({0, 1}).request({0}, 5).cost(100, 40, 60).log());
  streams.push_back(
      StreamBuilder(1, 3).create({0}).create({1}).request({1}, 7).cost(10, 4, 6).log());
  const AccessLog log = make_log(std::move(streams), 2, 6, 4, 2);
  const KvShape target{4, 16, 8, 16};
  const LayerPlan layer = place(log, parse(R"({"part": "none"})", "sequence"), target).layers[0];
  constexpr std::int64_t kEntry = 2 * 16 * 2;
  EXPECT_THAT(layer.accounting.requested_bytes, ElementsAre(4 * (2 + 1) * kEntry));
  EXPECT_THAT(requested_groups(log, target), ElementsAre(8));
  EXPECT_EQ(layer.io.region_bytes, 8u * 3 * kEntry);
  // Even heads read tokens 0 and 1, odd ones token 1; a head's region holds three tokens.
  const std::vector<Extent> reads = reads_at(layer, 0);
  ASSERT_EQ(reads.size(), 8u);
  EXPECT_EQ(reads[0], (Extent{0, 2 * kEntry}));
  EXPECT_EQ(reads[1], (Extent{4 * kEntry, kEntry}));
  EXPECT_EQ(reads[6], (Extent{18 * kEntry, 2 * kEntry}));
  EXPECT_EQ(layer.dram.index_bytes, 4 * (100 + 10) * 4);  // 4 times the dimensions
  EXPECT_THAT(layer.compute.score_bytes, ElementsAre(4 * 44 * 4));
  EXPECT_THAT(layer.compute.score_flops,
              ElementsAre(4 * (60 * 8 / 3 + 6 * 8 / 3)));      // 2 x 16 for 3 x 4
  EXPECT_THAT(layer.compute.attended_tokens, ElementsAre(7));  // (5 6 7) and (7 8 9)
}

TEST(Place, ProjectsJointHeadsAtOnce) {
  std::vector<StreamLog> streams;
  streams.push_back(StreamBuilder(3, 9).create({0, 1}).request({0}, 1).cost(90, 30, 900).log());
  const AccessLog log = make_log(std::move(streams), 3, 9, 64, 2);
  const KvShape target{32, 32, 8, 128};
  const LayerPlan layer = place(log, parse(R"({"part": "none"})", "grouped"), target).layers[0];
  EXPECT_THAT(layer.accounting.requested_bytes, ElementsAre(2 * 8 * 128 * 2 * 2));
  EXPECT_THAT(requested_groups(log, target), ElementsAre(1));
  EXPECT_EQ(layer.dram.index_bytes, 90 * 8 * 128 / (3 * 64));
  EXPECT_THAT(layer.compute.score_bytes, ElementsAre(30 * 8 * 128 / (3 * 64)));
  EXPECT_THAT(layer.compute.score_flops, ElementsAre((900 * 32 * 128 + 9 * 64 / 2) / (9 * 64)));
  EXPECT_THAT(layer.compute.attended_tokens, ElementsAre(5));  // 1 to 9
}

TEST(Place, FormatsSetTheBytes) {
  std::vector<StreamLog> streams;
  streams.push_back(StreamBuilder()
                        .reencode(1, {1})
                        .create({0, 1})
                        .request({0})
                        .reencode(1, {0})
                        .request({0})
                        .log());
  AccessLog log = make_log(std::move(streams), 1, 1, 4, 2);
  log.formats.push_back({"int4", 4, 16});
  for (const std::string layout : {"sequence", "grouped"}) {
    const LayerPlan layer =
        place(log, parse(R"({"part": "none"})", layout), recorded_shape(log)).layers[0];
    EXPECT_THAT(layer.accounting.requested_bytes, ElementsAre(16 + 6, 6 + 6));
    EXPECT_EQ(layer.dram.entries_bytes, 6 + 6 + 16 + 16);
    EXPECT_EQ(writes_at(layer, 0).size(), 1u);
  }
}

/// Bookkeeping token by token, with sets and no clever sums.
struct ByTokens {
  std::map<Token, std::int64_t> format;
  std::map<GroupId, std::vector<Token>> members;

  void take(const GroupEvent& event) {
    const auto add = [&](GroupId group) {
      members[group].insert(members[group].end(), event.tokens.begin(), event.tokens.end());
    };
    const auto drop = [&](GroupId group) {
      for (const Token token : event.tokens) std::erase(members[group], token);
    };
    switch (event.kind) {
      case EventKind::kCreated:
      case EventKind::kAppended:
        add(event.group);
        break;
      case EventKind::kSplit:
        drop(event.group);
        add(event.other);
        break;
      case EventKind::kEvicted:
        drop(event.group);
        break;
      case EventKind::kDissolved:
        members[event.group].clear();
        break;
      case EventKind::kReencoded:
        for (const Token token : event.tokens) format[token] = event.other;
        break;
      default:
        break;
    }
  }
};

class EachPlace : public testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(
    Places, EachPlace,
    testing::Combine(testing::Values(R"({"part": "none"})", R"({"part": "last_steps"})",
                                     R"({"part": "fifo", "capacity_groups": 7})",
                                     R"({"part": "lru", "capacity_bytes": 1000})",
                                     R"({"part": "s3_fifo", "capacity_groups": 20})",
                                     R"({"part": "cluster_aligned", "capacity_bytes": 1500})",
                                     R"({"part": "belady", "capacity_groups": 7})"),
                     testing::Values("sequence", "grouped", "packed", "correlated", "dual_head")));

TEST_P(EachPlace, ConservesBytesWhateverHappens) {
  const auto& [cache, layout] = GetParam();
  Random random(7);
  for (int trial = 0; trial < 12; ++trial) {
    const bool joint = trial % 3 == 0;
    std::vector<StreamLog> streams;
    for (int head = 0; head < (joint ? 1 : 3); ++head) {
      streams.push_back(
          random_stream(random, {.kv_heads = joint ? 3 : 1, .query_heads = joint ? 6 : 2}));
    }
    AccessLog log = make_log(std::move(streams), 3, 6, 8, 40);
    log.formats = {{"fp16", 16, 0}, {"fp8", 8, 32}, {"wide", 20, 0}};
    const KvShape target{1, 10, 5, 8};
    const LayerPlan plan = place(log, parse(cache, layout), target).layers[0];

    // The prompt's groups are written once each, where the steps find them.
    std::vector<Extent> written = plan.io.prompt_writes;
    std::uint64_t prompt_bytes = 0;
    for (const Extent& extent : written) prompt_bytes += extent.bytes;
    EXPECT_EQ(prompt_bytes, plan.io.prompt_write_bytes);
    coalesce(written);
    for (const Extent& extent : written) prompt_bytes -= extent.bytes;
    EXPECT_EQ(prompt_bytes, 0u) << "disjoint";
    EXPECT_EQ(plan.io.prompt_ready.size(), plan.io.prompt_writes.size());
    EXPECT_TRUE(std::is_sorted(plan.io.prompt_ready.begin(), plan.io.prompt_ready.end()));

    const std::size_t count = joint ? 1 : 5;
    std::vector<ByTokens> state(count);
    const auto stream_of = [&](std::size_t s) -> const StreamLog& {
      return log.layers[0].streams[s % log.layers[0].streams.size()];
    };
    for (std::size_t s = 0; s < count; ++s) {
      stream_of(s).for_events(0, [&](const GroupEvent& event) { state[s].take(event); });
    }
    std::int64_t hit_bytes = 0;
    for (std::int64_t step = 0; step < log.steps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      std::int64_t requested = 0;
      for (std::size_t s = 0; s < count; ++s) {
        for (const GroupId group : stream_of(s).requested.numbers(step)) {
          for (const Token token : state[s].members[group]) {
            const auto format = static_cast<std::size_t>(state[s].format[token]);
            requested += log.formats[format].entry_bytes(joint ? 5 : 1, 8);
          }
        }
      }
      EXPECT_GE(plan.accounting.requested_bytes[at], requested);  // loads come on top
      EXPECT_EQ(plan.accounting.requested_bytes[at],
                plan.accounting.hit_bytes[at] + plan.accounting.missed_bytes[at]);
      EXPECT_LE(plan.accounting.hit_bytes[at], plan.accounting.requested_bytes[at]);
      std::int64_t read = 0;
      std::uint64_t end = 0;
      for (const Extent& extent : plan.io.reads_at(step)) {
        EXPECT_TRUE(read == 0 || extent.offset > end);  // ascending, apart
        end = extent.end();
        read += static_cast<std::int64_t>(extent.bytes);
      }
      EXPECT_LE(end, plan.io.region_bytes);
      // A range that was freed and taken again within a step may be read for both.
      EXPECT_LE(read, plan.accounting.missed_bytes[at] + plan.accounting.moved_bytes[at]);
      if (layout == "sequence") {
        EXPECT_EQ(read, plan.accounting.missed_bytes[at]);
      }
      hit_bytes += plan.accounting.hit_bytes[at];
      for (std::size_t s = 0; s < count; ++s) {
        stream_of(s).for_events(step + 1, [&](const GroupEvent& event) { state[s].take(event); });
      }
    }
    EXPECT_EQ(hit_bytes > 0, cache != R"({"part": "none"})");
  }
}

TEST(Place, FewestMissesAreBeladys) {
  Random random(8);
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<StreamLog> streams;
    for (int head = 0; head < 2; ++head) {
      streams.push_back(random_stream(random, {.steps = 100, .changes = false}));
    }
    const AccessLog log = make_log(std::move(streams), 2, 4, 8, 40);
    const std::vector<TimedAccess> timed = access_sequence(log, 0, recorded_shape(log));
    std::vector<Access> accesses;
    for (const TimedAccess& one : timed) accesses.push_back(one.access);
    const auto misses = [&](const std::string& name) {
      const std::unique_ptr<Cache> cache =
          parse(R"({"part": ")" + name + R"(", "capacity_groups": 9})", "sequence")
              .cache.make({.streams = 2});
      if (cache->needs_future()) cache->set_future_accesses(accesses);
      std::int64_t count = 0;
      std::int64_t now = 0;
      for (const auto& [step, access] : timed) {
        for (; now < step; ++now) cache->end_step();
        cache->notify_resize(access.key, access.bytes);  // it has grown since
        count += cache->access(access, {}) ? 0 : 1;
      }
      return count;
    };
    for (const std::string name : {"fifo", "lru", "arc", "sieve", "two_q", "lfu"}) {
      EXPECT_LE(misses("belady"), misses(name)) << name;
    }
  }
}

/// Groups of one token each that never change, requested at random, the recent ones more often.
StreamLog unit_groups(Random& random, std::int64_t groups, std::int64_t steps) {
  StreamBuilder builder;
  for (Token token = 0; token < groups; ++token) builder.create({token});
  std::vector<bool> before(static_cast<std::size_t>(groups), false);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<GroupId> requested;
    for (GroupId group = 0; group < groups; ++group) {
      const auto at = static_cast<std::size_t>(group);
      before[at] = random.below(10) < (before[at] ? 6U : 2U);
      if (before[at]) requested.push_back(group);
    }
    builder.request(requested);
  }
  return builder.log();
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

TEST(Place, NoCacheHitsMoreThanItsBound) {
  const std::string parts[] = {R"("none")",
                               R"("resident")",
                               R"("last_steps", "steps": 1)",
                               R"("last_steps", "steps": 3)",
                               R"("fifo", "capacity_groups": 9)",
                               R"("lru", "capacity_bytes": 320)",
                               R"("lfu", "capacity_groups": 20)",
                               R"("arc", "capacity_groups": 9)",
                               R"("sieve", "capacity_groups": 9)",
                               R"("s3_fifo", "capacity_groups": 15)",
                               R"("cluster_aligned", "capacity_groups": 9)",
                               R"("belady", "capacity_groups": 9)"};
  Random random(9);
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<StreamLog> streams;
    for (int head = 0; head < 2; ++head) streams.push_back(unit_groups(random, 20, 60));
    const AccessLog log = make_log(std::move(streams), 2, 2, 8, 20);
    for (const std::string& part : parts) {
      SCOPED_TRACE(part);
      const LayerPlan plan =
          place(log, parse("{\"part\": " + part + "}", "sequence"), recorded_shape(log)).layers[0];
      EXPECT_LE(sum(plan.accounting.hit_bytes), sum(plan.accounting.best_hit_bytes));
      EXPECT_LE(sum(plan.accounting.best_hit_bytes), sum(plan.accounting.requested_bytes));
      if (part == R"("none")") {
        EXPECT_EQ(sum(plan.accounting.best_hit_bytes), 0);
      }
      if (part == R"("resident")") {
        EXPECT_EQ(plan.accounting.best_hit_bytes, plan.accounting.requested_bytes);
      }
      if (part.starts_with(R"("belady")")) {
        EXPECT_EQ(plan.accounting.best_hit_bytes, plan.accounting.hit_bytes);
      }
    }
  }
}

TEST(Place, TheBoundHasTheCachesCapacity) {
  std::vector<StreamLog> streams;
  streams.push_back(StreamBuilder()
                        .create({0})
                        .create({1})
                        .create({2})
                        .request({0, 1})
                        .request({2})
                        .request({0, 1})
                        .request({0})
                        .log());
  const AccessLog log = make_log(std::move(streams), 1, 1, 4, 3);  // 16 bytes per group
  const auto best = [&](const std::string& part) {
    return place(log, parse("{\"part\": " + part + "}", "sequence"), recorded_shape(log))
        .layers[0]
        .accounting.best_hit_bytes;
  };
  EXPECT_THAT(best(R"("fifo", "capacity_groups": 1)"), ElementsAre(0, 0, 16, 16));
  EXPECT_THAT(best(R"("fifo", "capacity_bytes": 32)"), ElementsAre(0, 0, 32, 16));
  // It holds at most two groups, and only the last step requests a group that it holds.
  EXPECT_THAT(best(R"("last_steps", "steps": 1)"), ElementsAre(0, 0, 32, 16));
}

TEST(Place, ResolvedIsCanonical) {
  const std::string text =
      parse(R"({"steps": {"value": 2, "source": "ClusterKV"}, "part": "last_steps"})", "packed")
          .resolved();
  EXPECT_EQ(
      text,
      R"({"cache":{"part":"last_steps","steps":2},"layout":{"merge_reads":true,"part":"packed"}})");
}

TEST(Place, WrongConfigsAreNamed) {
  EXPECT_THAT(user_error_of([] { (void)parse(R"({"part": "lur"})", "grouped"); }),
              HasSubstr("lru"));
  EXPECT_THAT(user_error_of([] { (void)parse(R"({"part": "lru"})", "grouped"); }),
              HasSubstr("system.json: /cache/capacity_groups"));
  EXPECT_THAT(
      user_error_of([] {
        (void)PlaceSpec::parse(ConfigNode::parse(R"({"cache": {"part": "none"}})", "system.json"));
      }),
      HasSubstr("layout"));
}

TEST(ExportAccesses, WritesOracleGeneralRecords) {
  const AccessLog log = small_log();
  TemporaryFolder folder;
  const std::string file = folder.file("accesses.bin");
  export_accesses(log, 0, recorded_shape(log), file);
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  // Step 0: groups 0 and 1; step 1: group 0; step 2: group 0 of 48 bytes, then group 1.
  const auto record = [](char step, char group, char size, char next) {
    std::string text(24, next < 0 ? '\xff' : '\0');
    text.replace(0, 16, 16, '\0');
    text[0] = step;
    text[4] = group;
    text[12] = size;
    if (next >= 0) text[16] = next;
    return text;
  };
  EXPECT_EQ(bytes, record(0, 0, 32, 2) + record(0, 1, 32, 4) + record(1, 0, 32, 3) +
                       record(2, 0, 48, -1) + record(2, 1, 32, -1));
}

TEST(GroupStatistics, ReadLengthIsTheMeanOfRanges) {
  LayerPlan plan;
  EXPECT_EQ(read_length(plan).value(), 0);
  plan.io.reads = {{0, 10}, {100, 50}};
  EXPECT_EQ(read_length(plan).value(), 30);
}

}  // namespace
}  // namespace kvreplay
