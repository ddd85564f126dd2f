#include "devices/schedule/schedule.hpp"

#include <algorithm>
#include <cassert>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/line_reader.hpp"

namespace kvreplay {
namespace {

constexpr std::uint64_t kMaxEnd = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxComputeNs = 3600 * std::int64_t{1'000'000'000};

class ScheduleReader {
 public:
  ScheduleReader(std::istream& stream, const std::string& file) : lines_(stream, file) {}

  Schedule read() && {
    read_header();
    while (next()) {
      if (!take_line()) continue;
      if (next()) throw lines_.wrong("nothing after the end");
      return std::move(schedule_);
    }
    throw lines_.wrong("a last line `end STEPS COMMANDS`");
  }

 private:
  /// Advances to the next line; what is left behind joins the checksum.
  bool next() {
    if (lines_.number() > 0) hash_.update(lines_.line() + "\n");
    return lines_.next();
  }

  void read_header() {
    if (!next() || lines_.line() != Schedule::kFirstLine) {
      throw lines_.wrong(std::string("`") + Schedule::kFirstLine + "`");
    }
    constexpr std::string_view kMadeFrom = "made_from ";
    if (!next() || !std::string_view(lines_.line()).starts_with(kMadeFrom)) {
      throw lines_.wrong("`made_from TEXT`");
    }
    std::string made_from = lines_.line().substr(kMadeFrom.size());
    constexpr std::string_view kLimits =
        "`limits BLOCK_BYTES LARGEST_COMMAND_BYTES QUEUE_DEPTH`, each at least 1, the second a "
        "multiple of the first";
    if (!next() || lines_.word() != "limits") throw lines_.wrong(kLimits);
    limits_.logical_block_bytes = lines_.number<std::uint32_t>(1, 1u << 30, kLimits);
    limits_.max_transfer_bytes = lines_.number<std::uint32_t>(1, 1u << 30, kLimits);
    limits_.queue_depth = lines_.number<std::uint32_t>(1, 1u << 16, kLimits);
    lines_.end_of_line(kLimits);
    if (limits_.max_transfer_bytes % limits_.logical_block_bytes != 0) throw lines_.wrong(kLimits);
    schedule_ = Schedule(limits_, std::move(made_from));
  }

  /// Returns whether it was the last one.
  bool take_line() {
    const std::string_view what = lines_.word();
    if (what == "step") {
      lines_.end_of_line("`step`");
      schedule_.begin_step();
      return false;
    }
    if (what == "end") {
      check_end();
      return true;
    }
    if (schedule_.steps() == 0) throw lines_.wrong("`step`: all operations belong to one");
    if (what == "submit") {
      read_batch();
    } else if (what == "wait") {
      constexpr std::string_view kWait = "`wait BATCH`, of a batch that was submitted before";
      if (schedule_.batches() == 0) throw lines_.wrong(kWait);
      const auto last = static_cast<std::int64_t>(schedule_.batches()) - 1;
      schedule_.wait(lines_.number<std::int64_t>(0, last, kWait));
      lines_.end_of_line(kWait);
    } else if (what == "compute") {
      constexpr std::string_view kCompute = "`compute NANOSECONDS`, 0 to 3600000000000";
      schedule_.compute(lines_.number<std::int64_t>(0, kMaxComputeNs, kCompute));
      lines_.end_of_line(kCompute);
    } else {
      throw lines_.wrong("step, submit, wait, compute or end");
    }
    return false;
  }

  void read_batch() {
    constexpr std::string_view kSubmit = "`submit COMMANDS`, at least 1";
    const auto count = lines_.number<std::uint32_t>(1, 1u << 30, kSubmit);
    lines_.end_of_line(kSubmit);
    batch_.clear();
    const std::string allowed = "`r OFFSET BYTES` or `w OFFSET BYTES`: multiples of " +
                                std::to_string(limits_.logical_block_bytes) + ", bytes from 1 to " +
                                std::to_string(limits_.max_transfer_bytes);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::string_view direction = next() ? lines_.word() : std::string_view();
      if (direction != "r" && direction != "w") {
        throw lines_.wrong(allowed + " (command " + std::to_string(i + 1) + " of " +
                           std::to_string(count) + ")");
      }
      IoCommand command{.write = direction == "w"};
      command.offset =
          lines_.number<std::uint64_t>(0, kMaxEnd - limits_.max_transfer_bytes, allowed);
      command.bytes = lines_.number<std::uint32_t>(1, limits_.max_transfer_bytes, allowed);
      lines_.end_of_line(allowed);
      if (command.offset % limits_.logical_block_bytes != 0 ||
          command.bytes % limits_.logical_block_bytes != 0) {
        throw lines_.wrong(allowed);
      }
      batch_.push_back(command);
    }
    schedule_.submit(batch_);
  }

  void check_end() {
    const std::size_t steps = schedule_.steps();
    const std::size_t commands = schedule_.commands().size();
    const std::string allowed = "`end " + std::to_string(steps) + " " + std::to_string(commands) +
                                "`: the numbers of steps and commands before it, at least one step";
    if (steps == 0) throw lines_.wrong(allowed);
    (void)lines_.number<std::size_t>(steps, steps, allowed);
    (void)lines_.number<std::size_t>(commands, commands, allowed);
    const std::string_view checksum = lines_.word();
    if (!checksum.empty() && checksum != hash_.hex()) {
      throw lines_.wrong("the SHA-256 of the lines before it; none after a change by hand");
    }
    lines_.end_of_line(allowed);
  }

  LineReader lines_;
  Sha256 hash_;
  DeviceLimits limits_;
  std::vector<IoCommand> batch_;
  Schedule schedule_;
};

}  // namespace

Schedule::Schedule(const DeviceLimits& limits, std::string made_from)
    : limits_(limits), made_from_(std::move(made_from)) {
  std::replace_if(
      made_from_.begin(), made_from_.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
}

void Schedule::begin_step() {
  step_begin_.push_back(operations_.size());
  operations_.push_back({Kind::kStep, 0});
}

std::int64_t Schedule::submit(std::span<const IoCommand> commands) {
  assert(!step_begin_.empty() && !commands.empty());
  const auto batch = static_cast<std::int64_t>(batches());
  commands_.insert(commands_.end(), commands.begin(), commands.end());
  batch_begin_.push_back(commands_.size());
  operations_.push_back({Kind::kSubmit, batch});
  return batch;
}

void Schedule::wait(std::int64_t batch) {
  assert(!step_begin_.empty() && batch >= 0 && batch < static_cast<std::int64_t>(batches()));
  operations_.push_back({Kind::kWait, batch});
}

void Schedule::compute(std::int64_t duration_ns) {
  assert(!step_begin_.empty() && duration_ns >= 0);
  operations_.push_back({Kind::kCompute, duration_ns});
}

std::span<const Schedule::Operation> Schedule::step(std::size_t index) const {
  const std::size_t begin = step_begin_[index] + 1;
  const std::size_t end =
      index + 1 < step_begin_.size() ? step_begin_[index + 1] : operations_.size();
  return operations().subspan(begin, end - begin);
}

std::span<const IoCommand> Schedule::batch(std::int64_t batch) const {
  const std::size_t begin = first_command(batch);
  return commands().subspan(begin, first_command(batch + 1) - begin);
}

bool Schedule::writes() const {
  return std::any_of(commands_.begin(), commands_.end(),
                     [](const IoCommand& command) { return command.write; });
}

std::uint64_t Schedule::space_bytes() const {
  std::uint64_t end = 0;
  for (const IoCommand& command : commands_) end = std::max(end, command.offset + command.bytes);
  return end;
}

std::int64_t Schedule::compute_ns() const {
  std::int64_t sum = 0;
  for (const auto& [kind, value] : operations_) sum += kind == Kind::kCompute ? value : 0;
  return sum;
}

Schedule Schedule::first_steps(std::size_t count) const {
  if (count >= steps()) return *this;
  Schedule cut = *this;
  cut.operations_.resize(step_begin_[count]);
  cut.step_begin_.resize(count);
  std::size_t kept = 0;
  for (const auto& [kind, value] : cut.operations_) kept += kind == Kind::kSubmit ? 1 : 0;
  cut.batch_begin_.resize(kept + 1);
  cut.commands_.resize(cut.batch_begin_.back());
  return cut;
}

Schedule Schedule::wrapped(std::uint64_t bytes) const {
  constexpr std::uint64_t kMebibyte = 1 << 20;
  const std::uint64_t whole = bytes / kMebibyte * kMebibyte;
  if (whole < limits_.max_transfer_bytes || whole % limits_.logical_block_bytes != 0) {
    throw UserError({}, "the plan cannot be wrapped into " + std::to_string(bytes) + " bytes",
                    "at least 1 MiB, and its largest command");
  }
  Schedule result = *this;
  for (IoCommand& command : result.commands_) {
    command.offset = std::min(command.offset % whole, whole - command.bytes);
  }
  return result;
}

std::string Schedule::text() const {
  std::string text = std::string(kFirstLine) + "\nmade_from " + made_from_ + "\n";
  const auto line = [&text](std::string_view word, const auto&... numbers) {
    text += word;
    ((text += ' ', text += std::to_string(numbers)), ...);
    text += '\n';
  };
  line("limits", limits_.logical_block_bytes, limits_.max_transfer_bytes, limits_.queue_depth);
  for (const auto& [kind, value] : operations_) {
    switch (kind) {
      case Kind::kStep:
        line("step");
        break;
      case Kind::kWait:
        line("wait", value);
        break;
      case Kind::kCompute:
        line("compute", value);
        break;
      case Kind::kSubmit:
        line("submit", batch(value).size());
        for (const IoCommand& command : batch(value)) {
          line(command.write ? "w" : "r", command.offset, command.bytes);
        }
        break;
    }
  }
  const std::string checksum = sha256_text(text);
  line("end", steps(), commands_.size());
  text.insert(text.size() - 1, " " + checksum);
  return text;
}

Schedule Schedule::parse(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  return ScheduleReader(stream, name).read();
}

Schedule Schedule::read(const std::string& file) {
  check_regular_file(file);
  std::ifstream stream(file);
  if (!stream) throw UserError({file, ""}, "cannot be read", "a schedule");
  return ScheduleReader(stream, file).read();
}

}  // namespace kvreplay
