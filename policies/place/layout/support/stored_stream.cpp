#include "policies/place/layout/support/stored_stream.hpp"

#include <utility>

namespace kvreplay {

StoredStream::StoredStream(std::vector<std::int64_t> format_bytes)
    : format_bytes_(std::move(format_bytes)), reencoded_(format_bytes_.size()) {}

void StoredStream::on_event(const GroupEvent& event) {
  switch (event.kind) {
    case EventKind::kCreated:
      group_bytes_.push_back(0);
      add(event.group, bytes_of(event.tokens));
      break;
    case EventKind::kAppended:
      add(event.group, bytes_of(event.tokens));
      break;
    case EventKind::kSplit: {
      const std::int64_t bytes = bytes_of(event.tokens);
      group_bytes_.push_back(0);
      add(event.group, -bytes);
      add(event.other, bytes);
      break;
    }
    case EventKind::kEvicted: {
      const std::int64_t bytes = bytes_of(event.tokens);
      if (event.group != kNoGroup) add(event.group, -bytes);
      evicted_bytes_ += bytes;
      break;
    }
    case EventKind::kDissolved:
      add(event.group, -group_bytes(event.group));
      break;
    case EventKind::kReencoded:
      for (const Token token : event.tokens) reencode(token, event.other);
      break;
    case EventKind::kBuffered:
    case EventKind::kSealed:
    case EventKind::kLoaded:
      break;
  }
  groups_.on_event(event);
}

std::int64_t StoredStream::bytes_of(std::span<const Token> tokens) const {
  if (format_.empty()) return std::ssize(tokens) * format_bytes_[0];
  std::int64_t bytes = 0;
  for (const Token token : tokens) bytes += entry_bytes(token);
  return bytes;
}

void StoredStream::add(GroupId group, std::int64_t bytes) {
  group_bytes_[static_cast<std::size_t>(group)] += bytes;
  grouped_bytes_ += bytes;
}

void StoredStream::reencode(Token token, std::int32_t format) {
  const auto index = static_cast<std::size_t>(token);
  const std::int64_t before = entry_bytes(token);
  if (const std::int32_t old = this->format(token); old > 0) {
    --reencoded_[static_cast<std::size_t>(old)];
  }
  if (format > 0) ++reencoded_[static_cast<std::size_t>(format)];
  if (index >= format_.size()) format_.resize(index + 1, 0);
  format_[index] = format;
  const std::int64_t change = entry_bytes(token) - before;
  reencoded_bytes_ += change;
  const GroupId group = groups_.group_of(token);
  if (group != kNoGroup) add(group, change);
  if (groups_.where(token) == Groups::Where::kEvicted) evicted_bytes_ += change;
}

}  // namespace kvreplay
