#include "sim/live/live_layer.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "devices/commands.hpp"
#include "policies/decide/stream_policy.hpp"
#include "policies/place/cache/follow_event.hpp"

namespace kvreplay {
namespace {

PolicyOptions with_host(PolicyOptions options, EntryHost& host) {
  options.host = &host;
  return options;
}

/// Takes `cut`, sorted and disjoint, out of the extents.
void subtract(std::vector<Extent>& extents, const std::vector<Extent>& cut) {
  std::vector<Extent> rest;
  for (Extent extent : extents) {
    for (const Extent& taken : cut) {
      if (taken.end() <= extent.offset || taken.offset >= extent.end()) continue;
      if (taken.offset > extent.offset) {
        rest.push_back({extent.offset, taken.offset - extent.offset});
      }
      const std::uint64_t begin = std::min(extent.end(), taken.end());
      extent = {begin, extent.end() - begin};
    }
    if (extent.bytes > 0) rest.push_back(extent);
  }
  extents = std::move(rest);
}

bool intersects(const Extent& extent, const std::vector<Extent>& others) {
  return std::any_of(others.begin(), others.end(), [&](const Extent& other) {
    return other.offset < extent.end() && extent.offset < other.end();
  });
}

bool same_place(const std::vector<EntryPiece>& a, const std::vector<EntryPiece>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const EntryPiece& x, const EntryPiece& y) { return x.extent == y.extent; });
}

}  // namespace

void check_live(const DecideSpec& decide, const PlaceSpec& place, const LayerShape& shape) {
  const std::unique_ptr<Precision> precision =
      decide.precision.make({shape.stream(0, 1), 1, nullptr, shape.rope, true});
  if (!precision->has_codec()) {
    throw UserError(decide.precision.arguments().place("part"), decide.precision.name(),
                    "fp16, fp8 or low_rank_keys: live stores entries outside memory in no other "
                    "form");
  }
  if (decide.retention.name() != "all") {
    throw UserError(decide.retention.arguments().place("part"), decide.retention.name(),
                    "all: live evicts only what is in memory");
  }
  if (place.cache.make({})->needs_future()) {
    throw UserError(place.cache.arguments().place("part"), place.cache.name(),
                    "a cache that does not know the future");
  }
  if (place.layout.name() == "packed") {
    throw UserError(place.layout.arguments().place("part"), place.layout.name(),
                    "grouped, correlated, sequence or dual_head: live moves no groups that it has "
                    "not read");
  }
}

LiveLayer::LiveLayer(const DecideSpec& decide, const PlaceSpec& place, const LayerShape& shape,
                     const PolicyOptions& policy, const Options& options, DecodedRows& rows,
                     EntryMemory& memory, ReadNow read_now)
    : options_(options),
      shape_(shape),
      policy_(decide, shape, with_host(policy, *this)),
      rows_(rows),
      read_now_(std::move(read_now)),
      place_(place),
      step_reads_(place.merges_reads()) {
  const auto streams = policy_.streams();
  heads_per_stream_ = shape.kv_heads / std::ssize(streams);
  if (streams.front()->scoring().reads_all_keys()) {
    own_keys_ = std::make_unique<HalfRows>(shape.kv_heads, options.max_tokens, shape.head_dim);
  }
  std::vector<std::int64_t> bytes;
  for (const EntryFormat& format : policy_.formats()) {
    bytes.push_back(format.entry_bytes(heads_per_stream_, shape.head_dim));
  }
  for (std::size_t s = 0; s < streams.size(); ++s) {
    streams_.push_back(
        {.stored = StoredStream(bytes), .held = HeldEntries(memory, bytes, options.max_tokens)});
    streams_.back().on_target.resize(static_cast<std::size_t>(options.max_tokens));
    if (options.check) streams_.back().copies.resize(static_cast<std::size_t>(options.max_tokens));
  }
  for (EntryReads* reads : {&reads_, &cache_reads_, &late_reads_}) reads->layer = this;
  written_.resize(options.region.bytes / options.limits.logical_block_bytes);
}

Entries LiveLayer::entries(std::int64_t tokens) const {
  return {(own_keys_ ? *own_keys_ : rows_.keys).first(tokens), rows_.values.first(tokens)};
}

void LiveLayer::show(std::size_t s, Token token) {
  const Stream& here = streams_[s];
  const StreamPolicy& policy = *policy_.streams()[s];
  const std::int64_t head = policy.shape().first_kv_head;
  HalfRows& keys = own_keys_ ? *own_keys_ : rows_.keys;
  const auto bytes = static_cast<std::size_t>(here.stored.entry_bytes(token));
  policy.precision().decode(here.held.get(token).first(bytes), token, here.stored.format(token),
                            keys.row(head, token), rows_.values.row(head, token),
                            keys.head_stride());
}

void LiveLayer::show_group(std::size_t s, GroupId group) {
  const std::vector<Token>& members = streams_[s].stored.groups().members(group);
  for (const Token token : members) {
    check_held(streams_[s], token);
    show(s, token);
  }
  work_.decoded_entries += heads_per_stream_ * std::ssize(members);
}

void LiveLayer::check_held(const Stream& here, Token token) {
  if (!here.held.has(token)) {
    throw std::logic_error("token " + std::to_string(token) + " is needed, but not in memory");
  }
}

void LiveLayer::take_in_hand(std::size_t s, GroupId group) {
  std::vector<std::int64_t>& in_hand = streams_[s].in_hand;
  const auto index = static_cast<std::size_t>(group);
  if (index >= in_hand.size()) in_hand.resize(index + 1, -1);
  in_hand[index] = step_;
}

bool LiveLayer::is_in_hand(std::size_t s, GroupId group) const {
  const std::vector<std::int64_t>& in_hand = streams_[s].in_hand;
  const auto index = static_cast<std::size_t>(group);
  return index < in_hand.size() && in_hand[index] == step_;
}

// The prompt.

void LiveLayer::add_prompt(const Entries& exact, const QueryWindow& window, LiveIo& io) {
  LapTimer timer;
  policy_.add_prompt(exact, window);
  timer.add_to(work_.index_ns);
  // Scores that keep something of every key take it with the first query; later the keys are gone.
  policy_.select(
      exact, std::vector<float>(static_cast<std::size_t>(shape_.query_heads * shape_.head_dim)));
  in_prompt_ = false;
  newest_ = static_cast<Token>(options_.prompt_tokens - 1);
  const auto streams = policy_.streams();
  std::vector<WindowSelections> selections;
  std::vector<std::int64_t> bytes;
  for (const auto& stream : streams) {
    selections.push_back({stream->log().window_begin, stream->log().window_requested});
  }
  for (const EntryFormat& format : policy_.formats()) {
    bytes.push_back(format.entry_bytes(heads_per_stream_, shape_.head_dim));
  }
  cache_ = place_.cache.make({.streams = std::ssize(streams), .entry_bytes = bytes.front()});
  layout_ = place_.layout.make({.streams = std::ssize(streams),
                                .entry_bytes = *std::max_element(bytes.begin(), bytes.end()),
                                .max_tokens = options_.max_tokens,
                                .window = std::move(selections)});
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const auto number = static_cast<std::int32_t>(s);
    streams[s]->log().for_events(0, [&](const GroupEvent& event) {
      StoredStream& stored = stream(s).stored;
      stored.on_event(event);
      follow_event(*cache_, number, event, stored);
      layout_->notify_event(number, event, stored, traffic_);
    });
  }
  for (std::size_t s = 0; s < streams.size(); ++s) {
    layout_->end_prompt(static_cast<std::int32_t>(s), stream(s).stored, traffic_);
  }
  traffic_ = {};
  write_prompt(exact, io);
  locate_held();
  find_index_reads();
  step_ = 0;
}

void LiveLayer::write_prompt(const Entries& exact, LiveIo& io) {
  if (layout_->region_bytes() > options_.region.bytes) {
    throw UserError({options_.target, ""},
                    "too small: layer " + std::to_string(shape_.layer) + " of " +
                        "the prompt takes " + std::to_string(layout_->region_bytes()) +
                        " bytes of its " + std::to_string(options_.region.bytes),
                    "a larger target, or --create with more");
  }
  const std::uint64_t block = options_.limits.logical_block_bytes;
  prompt_image_.assign((layout_->region_bytes() + block - 1) / block * block, std::byte{});
  std::vector<Extent> extents;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    Stream& here = stream(s);
    const StreamPolicy& policy = *policy_.streams()[s];
    const Entries mine = exact.select_heads(policy.shape().first_kv_head, heads_per_stream_);
    std::vector<std::byte> bytes;
    const auto encode = [&](Token token) {
      bytes.resize(static_cast<std::size_t>(here.stored.entry_bytes(token)));
      policy.precision().encode(mine, token, here.stored.format(token), bytes);
      if (options_.check) here.copies[static_cast<std::size_t>(token)] = bytes;
    };
    for (GroupId group = 0; group < here.stored.groups().count(); ++group) {
      if (!here.stored.groups().live(group)) continue;
      std::vector<EntryPiece> pieces;
      layout_->locate_entries(static_cast<std::int32_t>(s), group, here.stored, pieces);
      for (const EntryPiece& piece : pieces) {
        if (piece.begin == 0) encode(piece.token);
        std::memcpy(prompt_image_.data() + piece.extent.offset, bytes.data() + piece.begin,
                    piece.extent.bytes);
        extents.push_back(piece.extent);
        here.on_target[static_cast<std::size_t>(piece.token)] = true;
      }
    }
    for (const Token token : here.stored.groups().buffered()) {
      encode(token);
      std::copy(bytes.begin(), bytes.end(),
                here.held.add(token, here.stored.format(token)).begin());
    }
    // The next step's scores may read the newest token's key.
    if (!here.held.has(newest_) && here.stored.groups().where(newest_) != Groups::Where::kEvicted) {
      encode(newest_);
      std::copy(bytes.begin(), bytes.end(),
                here.held.add(newest_, here.stored.format(newest_)).begin());
    }
    if (own_keys_) {
      for (Token token = 0; token <= newest_; ++token) {
        encode(token);
        policy.precision().decode(bytes, token, here.stored.format(token),
                                  own_keys_->row(policy.shape().first_kv_head, token),
                                  rows_.values.row(policy.shape().first_kv_head, token),
                                  own_keys_->head_stride());
      }
    }
  }
  std::vector<IoCommand> commands;
  make_commands(extents, true, commands);
  for (const IoCommand& command : commands) {
    mark_written(command);
    io.write({&command, 1},
             {prompt_image_.data() + (command.offset - options_.region.offset), command.bytes},
             prompt_batch_);
  }
}

// Reads.

void LiveLayer::make_commands(std::vector<Extent>& extents, bool write,
                              std::vector<IoCommand>& commands) const {
  if (write) {
    coalesce(extents);
  } else {
    step_reads_.arrange(extents);
  }
  std::vector<Extent> placed;
  for (const Extent& extent : extents) {
    placed.push_back({options_.region.offset + extent.offset, extent.bytes});
  }
  to_commands(placed, write, options_.limits, commands, write || place_.merges_reads());
}

void LiveLayer::add_pieces(std::size_t s, GroupId group, EntryReads& reads) const {
  std::vector<EntryPiece> pieces;
  layout_->locate_entries(static_cast<std::int32_t>(s), group, streams_[s].stored, pieces);
  for (EntryPiece& piece : pieces) {
    if (streams_[s].held.has(piece.token)) continue;  // memory has it, the target perhaps not yet
    piece.extent.offset += options_.region.offset;
    reads.pieces.push_back({static_cast<std::int32_t>(s), piece, nullptr});
  }
}

void LiveLayer::request(std::size_t s, GroupId group, EntryReads& reads) {
  const auto number = static_cast<std::int32_t>(s);
  const StoredStream& stored = streams_[s].stored;
  const Access access{{number, group}, stored.group_bytes(group)};
  if (!cache_->access(access, stored.groups().members(group))) {
    step_reads_.locate(*layout_, number, group, stored, reads.extents);
    add_pieces(s, group, reads);
    work_.fetched_entries += heads_per_stream_ * std::ssize(stored.groups().members(group));
  }
  take_in_hand(s, group);
}

void LiveLayer::finish_reads(EntryReads& reads) {
  reads.commands.clear();
  make_commands(reads.extents, false, reads.commands);
  for (PlacedPiece& placed : reads.pieces) {
    Stream& here = stream(static_cast<std::size_t>(placed.stream));
    const Token token = placed.piece.token;
    placed.slot = here.held.add(token, here.stored.format(token)).data();
  }
  std::sort(reads.pieces.begin(), reads.pieces.end(),
            [](const PlacedPiece& a, const PlacedPiece& b) {
              return a.piece.extent.offset < b.piece.extent.offset;
            });
}

void LiveLayer::EntryReads::on_read(const IoCommand& command, std::span<const std::byte> bytes) {
  const Extent whole{command.offset, command.bytes};
  auto at = std::partition_point(pieces.begin(), pieces.end(), [&](const PlacedPiece& placed) {
    return placed.piece.extent.end() <= whole.offset;
  });
  for (; at != pieces.end() && at->piece.extent.offset < whole.end(); ++at) {
    const EntryPiece& piece = at->piece;
    const std::uint64_t begin = std::max(piece.extent.offset, whole.offset);
    const std::uint64_t end = std::min(piece.extent.end(), whole.end());
    std::memcpy(at->slot + piece.begin + (begin - piece.extent.offset),
                bytes.data() + (begin - whole.offset), end - begin);
  }
}

void LiveLayer::check_read(const EntryReads& reads) {
  if (!options_.check) return;
  for (const auto& [s, piece, slot] : reads.pieces) {
    if (piece.begin != 0) continue;
    const Stream& here = streams_[static_cast<std::size_t>(s)];
    const std::vector<std::byte>& copy = here.copies[static_cast<std::size_t>(piece.token)];
    ++checked_entries_;
    if (std::memcmp(copy.data(), slot, copy.size()) == 0) continue;
    throw UserError({options_.target, ""},
                    "the entry of token " + std::to_string(piece.token) + " at layer " +
                        std::to_string(shape_.layer) + ", stream " + std::to_string(s) +
                        ", at offset " + std::to_string(piece.extent.offset) +
                        ", came back with other bytes than were written",
                    "a target that keeps what is written");
  }
}

void LiveLayer::locate_held() {
  if (!cache_->paged_by_layer()) return;
  cache_reads_.pieces.clear();
  cache_reads_.extents.clear();
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const auto number = static_cast<std::int32_t>(s);
    const StoredStream& stored = streams_[s].stored;
    for (GroupId group = 0; group < stored.groups().count(); ++group) {
      if (!cache_->contains({number, group})) continue;
      work_.fetched_entries += heads_per_stream_ * std::ssize(stored.groups().members(group));
      step_reads_.locate(*layout_, number, group, stored, cache_reads_.extents);
      std::vector<EntryPiece> pieces;
      layout_->locate_entries(number, group, stored, pieces);
      for (EntryPiece& piece : pieces) {
        piece.extent.offset += options_.region.offset;
        cache_reads_.pieces.push_back({number, piece, nullptr});
      }
    }
  }
}

// A step.

void LiveLayer::select(QueryRows scored) {
  LapTimer timer;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (stream(s).held.has(newest_)) show(s, newest_);
  }
  policy_.select(entries(newest_ + 1), scored);
  timer.add_to(work_.score_ns);
  reads_.pieces.clear();
  reads_.extents.clear();
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    for (const GroupId group : policy_.streams()[s]->requested()) request(s, group, reads_);
  }
  finish_reads(reads_);
  step_extents_ = reads_.extents;
  timer.add_to(work_.fetch_ns);
  for (const auto& stream : policy_.streams()) {
    work_.score_flops += stream->scoring().cost().flops;
  }
}

void LiveLayer::attend(const float* key, const float* value, QueryRows queries, float* outputs) {
  check_read(cache_reads_);
  check_read(reads_);
  LapTimer timer;
  cache_reads_.clear();
  reads_.clear();
  newest_ = static_cast<Token>(options_.prompt_tokens + step_);
  (own_keys_ ? *own_keys_ : rows_.keys).put(newest_, key);
  rows_.values.put(newest_, value);
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    for (const GroupId group : policy_.streams()[s]->requested()) show_group(s, group);
  }
  timer.add_to(work_.decode_ns);
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    const std::vector<Token>& buffered = stream(s).stored.groups().buffered();
    for (const Token token : buffered) show(s, token);
    work_.buffered_entries += heads_per_stream_ * std::ssize(buffered);
  }
  timer.add_to(work_.buffered_ns);
  for (const HeadAttention& head : policy_.attend_selected(entries(newest_ + 1), queries)) {
    outputs = std::copy(head.output.begin(), head.output.end(), outputs);
    work_.attended_elements += std::ssize(head.tokens) * shape_.head_dim;
  }
  timer.add_to(work_.attend_ns);
}

void LiveLayer::add_token() {
  LapTimer timer;
  policy_.add_token(entries(newest_ + 1));
  end_step(timer);
}

void LiveLayer::read_late() {
  LapTimer timer;
  read_now_(late_reads_.commands, late_reads_);
  std::int64_t waited_ns = 0;
  timer.add_to(waited_ns);
  work_.append_ns -= waited_ns;
  check_read(late_reads_);
}

void LiveLayer::on_stored(std::int64_t first_kv_head, Token token) {
  const std::size_t s = stream_of(first_kv_head);
  Stream& here = stream(s);
  const StreamPolicy& policy = *policy_.streams()[s];
  const std::int32_t format = here.stored.format(token);
  const std::span<std::byte> slot = here.held.add(token, format);
  policy.precision().encode(entries(token + 1).select_heads(first_kv_head, heads_per_stream_),
                            token, format, slot);
  if (options_.check) {
    here.copies[static_cast<std::size_t>(token)].assign(slot.begin(), slot.end());
  }
  show(s, token);
}

void LiveLayer::on_event(std::int64_t first_kv_head, const GroupEvent& event) {
  if (in_prompt_) return;
  const std::size_t s = stream_of(first_kv_head);
  const auto number = static_cast<std::int32_t>(s);
  Stream& here = stream(s);
  const bool in_hand = event.group != kNoGroup && is_in_hand(s, event.group);
  if (event.kind == EventKind::kLoaded) {
    if (!in_hand) {
      late_reads_.pieces.clear();
      late_reads_.extents.clear();
      request(s, event.group, late_reads_);
      finish_reads(late_reads_);
      step_extents_.insert(step_extents_.end(), late_reads_.extents.begin(),
                           late_reads_.extents.end());
      read_late();
    }
    show_group(s, event.group);
  }
  std::vector<EntryPiece> before;
  if (event.kind == EventKind::kAppended) {
    layout_->locate_entries(number, event.group, here.stored, before);
  }
  here.stored.on_event(event);
  if (event.kind == EventKind::kCreated) take_in_hand(s, event.group);
  if (event.kind == EventKind::kSplit && in_hand) take_in_hand(s, event.other);
  follow_event(*cache_, number, event, here.stored);
  layout_->notify_event(number, event, here.stored, traffic_);
  switch (event.kind) {
    case EventKind::kAppended:
      read_moved(s, before);
      here.touched.push_back(event.group);
      break;
    case EventKind::kCreated:
      here.touched.push_back(event.group);
      work_.regrouped_entries += heads_per_stream_ * std::ssize(event.tokens);
      break;
    case EventKind::kSplit:
      for (const GroupId group : {event.group, event.other}) {
        here.touched.push_back(group);
        work_.regrouped_entries +=
            heads_per_stream_ * std::ssize(here.stored.groups().members(group));
        for (const Token token : here.stored.groups().members(group)) check_held(here, token);
      }
      break;
    default:
      break;
  }
}

/// Where an append made the layout move the group, its entries come in from their old place.
void LiveLayer::read_moved(std::size_t s, const std::vector<EntryPiece>& old_pieces) {
  if (old_pieces.empty()) return;
  Stream& here = stream(s);
  std::vector<EntryPiece> pieces;
  layout_->locate_entries(static_cast<std::int32_t>(s),
                          here.stored.groups().group_of(old_pieces.front().token), here.stored,
                          pieces);
  if (pieces.size() >= old_pieces.size() &&
      same_place(old_pieces, {pieces.begin(), pieces.begin() + std::ssize(old_pieces)})) {
    return;
  }
  late_reads_.pieces.clear();
  late_reads_.extents.clear();
  for (EntryPiece piece : old_pieces) {
    if (here.held.has(piece.token)) continue;
    late_reads_.extents.push_back(piece.extent);
    piece.extent.offset += options_.region.offset;
    late_reads_.pieces.push_back({static_cast<std::int32_t>(s), piece, nullptr});
  }
  finish_reads(late_reads_);
  read_late();
}

// Writes.

void LiveLayer::end_step(LapTimer& timer) {
  cache_->end_step();
  if (layout_->region_bytes() > options_.region.bytes) {
    throw UserError({options_.target, ""},
                    "too small: layer " + std::to_string(shape_.layer) + " has outgrown its " +
                        std::to_string(options_.region.bytes) + " bytes",
                    "a larger target, or --create with more");
  }
  std::vector<Extent> writes = std::move(traffic_.writes);
  coalesce(writes);
  next_ = {};
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    note_touched(s, writes);
    cover(s, writes, next_);
  }
  make_writes(writes, next_);
  if (options_.keep_extents) {
    step_extents_.insert(step_extents_.end(), traffic_.moved_reads.begin(),
                         traffic_.moved_reads.end());
    step_reads_.arrange(step_extents_);
    extents_.reads.insert(extents_.reads.end(), step_extents_.begin(), step_extents_.end());
    extents_.read_begin.push_back(std::ssize(extents_.reads));
    extents_.writes.insert(extents_.writes.end(), writes.begin(), writes.end());
    extents_.write_begin.push_back(std::ssize(extents_.writes));
  }
  traffic_ = {};
  timer.add_to(work_.append_ns);
  sweep();
  locate_held();
  find_index_reads();
  timer.add_to(work_.fetch_ns);
  ++step_;
}

/// As many bytes as the last scores read: what the next ones read is known only with them.
void LiveLayer::find_index_reads() {
  index_reads_.clear();
  std::uint64_t bytes = 0;
  for (const auto& stream : policy_.streams()) {
    bytes += static_cast<std::uint64_t>(stream->scoring().cost().read_bytes);
  }
  const Extent index{options_.index_region.offset, std::min(bytes, options_.index_region.bytes)};
  if (index.bytes > 0) to_commands({&index, 1}, false, options_.limits, index_reads_);
}

/// Entries of the groups that changed are unsettled where they are new or written anew.
void LiveLayer::note_touched(std::size_t s, const std::vector<Extent>& writes) {
  Stream& here = stream(s);
  std::sort(here.touched.begin(), here.touched.end());
  here.touched.erase(std::unique(here.touched.begin(), here.touched.end()), here.touched.end());
  for (const GroupId group : here.touched) {
    if (!here.stored.groups().live(group)) continue;
    std::vector<EntryPiece> pieces;
    layout_->locate_entries(static_cast<std::int32_t>(s), group, here.stored, pieces);
    for (auto begin = pieces.begin(); begin != pieces.end();) {
      const Token token = begin->token;
      const auto end = std::find_if(begin, pieces.end(),
                                    [&](const EntryPiece& piece) { return piece.token != token; });
      const std::vector<EntryPiece> of_token(begin, end);
      begin = end;
      const auto known = here.unsettled.find(token);
      const bool pending = known != here.unsettled.end() && !known->second.settling;
      if (pending && same_place(known->second.pieces, of_token)) continue;
      const bool fresh = !here.on_target[static_cast<std::size_t>(token)];
      const bool rewritten =
          std::any_of(of_token.begin(), of_token.end(),
                      [&](const EntryPiece& piece) { return intersects(piece.extent, writes); });
      // A neighbour's page takes it along.
      const bool moved =
          known == here.unsettled.end() || !same_place(known->second.pieces, of_token);
      if (!fresh && !pending && !(rewritten && here.held.has(token) && moved)) continue;
      check_held(here, token);
      here.on_target[static_cast<std::size_t>(token)] = true;
      Unsettled& unsettled = here.unsettled[token];
      unsettled = {.generation = ++generation_, .pieces = of_token, .uncovered = {}};
      for (const EntryPiece& piece : of_token) unsettled.uncovered.push_back(piece.extent);
    }
  }
  here.touched.clear();
}

/// Takes the bytes of unsettled entries that this step writes.
void LiveLayer::cover(std::size_t s, const std::vector<Extent>& writes, BlockWrites& job) {
  if (writes.empty()) return;
  Stream& here = stream(s);
  for (auto& [token, unsettled] : here.unsettled) {
    const std::span<const std::byte> bytes = here.held.get(token);
    bool written = false;
    for (const EntryPiece& piece : unsettled.pieces) {
      // Whole blocks are written: what lies beside an extent in them is known from here too.
      written |= intersects(piece.extent, writes);
      job.known.push_back({options_.region.offset + piece.extent.offset, job.known_bytes.size(),
                           piece.extent.bytes});
      const auto part = bytes.subspan(piece.begin, piece.extent.bytes);
      job.known_bytes.insert(job.known_bytes.end(), part.begin(), part.end());
    }
    if (!written || unsettled.settling) continue;
    subtract(unsettled.uncovered, writes);
    if (!unsettled.uncovered.empty()) continue;
    unsettled.settling = true;
    job.settling.push_back({static_cast<std::int32_t>(s), token, unsettled.generation});
  }
}

void LiveLayer::make_writes(const std::vector<Extent>& writes, BlockWrites& job) {
  std::vector<Extent> extents = writes;
  make_commands(extents, true, job.commands);
  const std::uint64_t block = options_.limits.logical_block_bytes;
  std::size_t bytes = 0;
  std::vector<Extent> base;
  for (const IoCommand& command : job.commands) {
    for (std::uint64_t at = command.offset; at < command.offset + command.bytes; at += block) {
      std::uint64_t known = 0;
      for (const BlockWrites::Known& part : job.known) {
        const std::uint64_t begin = std::max(part.offset, at);
        const std::uint64_t end = std::min(part.offset + part.bytes, at + block);
        if (begin < end) known += end - begin;
      }
      if (known == block) continue;
      job.partial.push_back(at);
      if (is_written(at)) base.push_back({at, block});
    }
    bytes += command.bytes;
    mark_written(command);
  }
  coalesce(base);
  to_commands(base, false, options_.limits, job.base);
  job.bytes.assign(bytes, std::byte{});
  peak_write_bytes_ =
      std::max(peak_write_bytes_, std::ssize(job.bytes) + std::ssize(job.known_bytes));
}

std::byte* LiveLayer::BlockWrites::find(std::uint64_t offset) {
  std::size_t at = 0;
  for (const IoCommand& command : commands) {
    if (offset >= command.offset && offset < command.offset + command.bytes) {
      return bytes.data() + at + (offset - command.offset);
    }
    at += command.bytes;
  }
  return nullptr;
}

void LiveLayer::BlockWrites::on_read(const IoCommand& command, std::span<const std::byte> from) {
  // A read may span several of the write commands.
  for (std::size_t at = 0; at < from.size(); at += 512) {
    std::byte* to = find(command.offset + at);
    if (to != nullptr) std::memcpy(to, from.data() + at, 512);
  }
}

void LiveLayer::mark_written(const IoCommand& command) {
  const std::uint64_t block = options_.limits.logical_block_bytes;
  const std::uint64_t first = (command.offset - options_.region.offset) / block;
  for (std::uint64_t i = 0; i < command.bytes / block; ++i) written_[first + i] = true;
}

bool LiveLayer::is_written(std::uint64_t offset) const {
  return written_[(offset - options_.region.offset) / options_.limits.logical_block_bytes];
}

void LiveLayer::settle(const BlockWrites& job) {
  for (const auto& [s, token, generation] : job.settling) {
    Stream& here = stream(static_cast<std::size_t>(s));
    const auto found = here.unsettled.find(token);
    if (found != here.unsettled.end() && found->second.generation == generation) {
      here.unsettled.erase(found);
    }
  }
}

/// Once the job is done.
void LiveLayer::keep_partial_blocks(BlockWrites& job) {
  const std::size_t most = 2 * streams_.size();
  std::erase_if(partial_, [&](const Block& block) { return job.find(block.offset) != nullptr; });
  for (const std::uint64_t offset : job.partial) {
    const std::byte* from = job.find(offset);
    partial_.push_back({offset, {from, from + options_.limits.logical_block_bytes}});
    if (partial_.size() > most) partial_.pop_front();
  }
}

/// Takes from memory what is known of the blocks that the job writes in part.
void LiveLayer::find_base(BlockWrites& job) {
  std::erase_if(job.base, [&](const IoCommand& command) {
    for (std::uint64_t at = command.offset; at < command.offset + command.bytes;
         at += options_.limits.logical_block_bytes) {
      const auto known = std::find_if(partial_.begin(), partial_.end(),
                                      [&](const Block& block) { return block.offset == at; });
      if (known == partial_.end()) return false;
      std::copy(known->bytes.begin(), known->bytes.end(), job.find(at));
    }
    return true;
  });
  base_reads_ += std::ssize(job.base);
}

/// Drops what the next step finds elsewhere.
void LiveLayer::sweep() {
  const bool paged = cache_->paged_by_layer();
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    Stream& here = stream(s);
    const Groups& groups = here.stored.groups();
    here.held.sweep([&](Token token) {
      if (token == newest_ || here.unsettled.contains(token)) return true;
      const GroupId group = groups.group_of(token);
      if (group == kNoGroup) return groups.where(token) == Groups::Where::kBuffered;
      return !paged && cache_->contains({static_cast<std::int32_t>(s), group});
    });
  }
}

// Transfers.

void LiveLayer::start(TransferKind kind, LiveIo& io, LiveIo::Batch& batch) {
  switch (kind) {
    case TransferKind::kReads:
      io.read(reads_.commands, reads_, batch);
      break;
    case TransferKind::kCacheReads:
      // Entries that memory has may not be on the target yet.
      std::erase_if(cache_reads_.pieces, [&](const PlacedPiece& placed) {
        return streams_[static_cast<std::size_t>(placed.stream)].held.has(placed.piece.token);
      });
      finish_reads(cache_reads_);
      io.read(cache_reads_.commands, cache_reads_, batch);
      break;
    case TransferKind::kIndexReads: {
      // Representatives are in memory; what the system would read of them is read and dropped.
      static class : public LiveIo::Reader {
        void on_read(const IoCommand&, std::span<const std::byte>) override {}
      } nobody;
      io.read(index_reads_, nobody, batch);
      break;
    }
    case TransferKind::kWrites:
      settle(current_);
      keep_partial_blocks(current_);
      current_ = std::move(next_);
      next_ = {};
      find_base(current_);
      io.read(current_.base, current_, batch);
      break;
  }
}

bool LiveLayer::go_on(TransferKind kind, LiveIo& io, LiveIo::Batch& batch) {
  if (kind != TransferKind::kWrites || current_.has_base) return false;
  current_.has_base = true;
  for (const BlockWrites::Known& part : current_.known) {
    // Known parts lie within blocks that are written, in part, or not at all.
    for (std::size_t at = 0; at < part.bytes;) {
      const std::uint64_t offset = part.offset + at;
      const std::size_t here = std::min<std::size_t>(part.bytes - at, 512 - offset % 512);
      if (std::byte* to = current_.find(offset); to != nullptr) {
        std::memcpy(to, current_.known_bytes.data() + part.at + at, here);
      }
      at += here;
    }
  }
  io.write(current_.commands, current_.bytes, batch);
  return batch.left > 0;
}

std::int64_t LiveLayer::held_bytes() const {
  std::int64_t bytes = peak_write_bytes_ + (own_keys_ ? own_keys_->bytes() : 0);
  bytes += std::ssize(partial_) * static_cast<std::int64_t>(options_.limits.logical_block_bytes);
  return bytes;
}

}  // namespace kvreplay
