#include "devices/real/io_engine.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>

#include "devices/real/aligned_buffer.hpp"

namespace kvreplay {
namespace {

/// Reads one block through the engine; throws when that does not work.
void try_engine(const std::string& name, const BlockTarget& target) {
  const std::uint32_t block = target.alignment().offset_bytes;
  const AlignedBuffer memory(block, target.alignment().memory_bytes);
  const IoRequest request{{0, block, false}, 0};
  const auto engine = PartConfig<IoEngine>::by_name(name).make({target, memory.bytes(), 1});
  const IoReport report = run_all(*engine, {&request, 1}, 1);
  if (report.failure) throw report.failure->to_error(target.path());
}

/// Why the engine does not work here, found out in a child process; "" when it works.
std::string refusal(const std::string& name, const BlockTarget& target) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return std::string("no pipe (") + std::strerror(errno) + ")";
  const pid_t child = ::fork();
  if (child < 0) {
    const int error = errno;
    ::close(pipe[0]);
    ::close(pipe[1]);
    return std::string("no child process to try it in (") + std::strerror(error) + ")";
  }
  if (child == 0) {
    std::signal(SIGSYS, SIG_DFL);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::string reason;
    try {
      try_engine(name, target);
    } catch (const std::exception& error) {
      reason = error.what();
    }
    const ssize_t written = ::write(pipe[1], reason.data(), reason.size());
    ::_exit(written == static_cast<ssize_t>(reason.size()) && reason.empty() ? 0 : 1);
  }
  ::close(pipe[1]);

  // A device that does not answer one read within this time is unusable.
  constexpr int kPatienceMs = 20'000;
  pollfd ready{pipe[0], POLLIN, 0};
  int polled = 0;
  do {
    polled = ::poll(&ready, 1, kPatienceMs);
  } while (polled < 0 && errno == EINTR);
  if (polled == 0) {
    ::kill(child, SIGKILL);
    ::close(pipe[0]);
    // The child ends when the device answers, if ever; nobody waits for it.
    ::waitpid(child, nullptr, WNOHANG);
    return "no answer within 20 s";
  }
  std::string reason;
  std::array<char, 512> text{};
  for (ssize_t got = 0; polled > 0 && (got = ::read(pipe[0], text.data(), text.size())) > 0;) {
    reason.append(text.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  }
  if (WEXITSTATUS(status) != 0 && reason.empty()) return "failed without a word";
  return reason;
}

}  // namespace

std::optional<IoFailure> IoResult::failure(const IoCommand& command) const {
  if (result == std::int64_t{command.bytes}) return std::nullopt;
  if (result < 0) return IoFailure{command, static_cast<int>(-result), 0};
  return IoFailure{command, 0, static_cast<std::uint32_t>(result)};
}

void IoReport::add(const IoCommand& command, IoCompletion completion, std::int64_t result) {
  const auto failed = IoResult{.result = result}.failure(command);
  if (!failed) {
    completion.write = command.write;
    completions.push_back(completion);
  } else if (!failure) {
    failure = failed;
  }
}

/// Fills the queue, waits, and refills it.
IoReport IoEngine::run(const IoSource& source, std::uint32_t depth) {
  struct Flight {
    IoCommand command;
    IoCompletion completion;
  };
  IoReport report;
  std::vector<Flight> flights(depth);
  std::vector<std::uint32_t> idle;
  for (std::uint32_t slot = depth; slot > 0; --slot) idle.push_back(slot - 1);
  std::vector<IoResult> results;
  std::uint64_t next = 0;
  bool more = true;
  for (;;) {
    while (more && !report.failure && !idle.empty()) {
      const std::optional<IoRequest> request = source(next);
      more = request.has_value();
      if (!more) break;
      const std::uint32_t slot = idle.back();
      idle.pop_back();
      flights[slot] = {request->command, {next++, monotonic_ns(), 0, false}};
      start(slot, *request);
    }
    if (idle.size() == depth) return report;
    results.clear();
    wait(kForever, results);
    for (const IoResult& result : results) {
      Flight& flight = flights[result.slot];
      flight.completion.completed_ns = result.completed_ns;
      report.add(flight.command, flight.completion, result.result);
      idle.push_back(result.slot);
    }
  }
}

IoReport run_all(IoEngine& engine, std::span<const IoRequest> requests, std::uint32_t depth) {
  return engine.run(
      [requests](std::uint64_t index) -> std::optional<IoRequest> {
        if (index >= requests.size()) return std::nullopt;
        return requests[index];
      },
      depth);
}

EngineWithMemory::EngineWithMemory(const std::string& engine, const BlockTarget& target,
                                   std::size_t memory_bytes, Pages pages, std::uint32_t depth,
                                   RequestWatch* watch)
    : memory_(memory_bytes, target.alignment().memory_bytes, pages),
      engine_(PartConfig<IoEngine>::by_name(engine).make({target, memory_.bytes(), depth, watch})) {
}

std::vector<std::string> engine_preference() {
  const std::vector<std::string> known = Registry<IoEngine>::instance().names();
  std::vector<std::string> order{"io_uring", "aio", "threads", "sync"};
  std::erase_if(order, [&](const std::string& name) {
    return std::find(known.begin(), known.end(), name) == known.end();
  });
  return order;
}

std::string to_text(Pages pages) {
  switch (pages) {
    case Pages::kOrdinary:
      return "ordinary";
    case Pages::kHuge:
      return "huge";
    case Pages::kScattered:
      return "scattered";
  }
  return {};
}

std::string notes_of(const IoEngine& engine, Pages pages) {
  std::string notes = "memory of " + to_text(pages) + " pages";
  if (!engine.notes().empty()) notes += "; " + engine.notes();
  return notes;
}

EngineChoice choose_engine(const BlockTarget& target, const std::string& wanted) {
  EngineChoice choice;
  std::vector<std::string> candidates = engine_preference();
  if (!wanted.empty()) candidates = {Registry<IoEngine>::instance().find(wanted, {}).name};
  for (const std::string& name : candidates) {
    const std::string reason = refusal(name, target);
    if (reason.empty()) {
      choice.name = name;
      return choice;
    }
    choice.refused.push_back({name, reason});
  }
  throw UserError({target.path(), ""},
                  "engine " + choice.refused.front().engine + ": " + choice.refused.front().reason,
                  join(engine_preference()));
}

std::int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace kvreplay
