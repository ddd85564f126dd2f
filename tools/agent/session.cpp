#include "tools/agent/session.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "devices/real/replay_target.hpp"
#include "devices/remote/frame.hpp"
#include "devices/remote/messages.hpp"

namespace kvreplay {
namespace {

constexpr int kOtherSideGone = 3;
/// Upper limits of waiting requests. kvreplay sends the next one when the last is answered, so this
/// is plenty.
constexpr std::size_t kMaxWaiting = 64;
constexpr std::size_t kMaxWaitingBytes = 2 * kMaxFrameBytes;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 44;

ConfigNode parsed(const std::string& payload) {
  return ConfigNode::parse(payload, "request");
}

bool is_stop(const std::string& payload) {
  try {
    const ConfigNode request = parsed(payload);
    return request.has("verb") && request.at("verb").text() == "stop";
  } catch (const UserError&) {
    return false;  // it is answered in turn
  }
}

}  // namespace

Session::Session(int input, int output, std::string sha256)
    : input_(input), output_(output), sha256_(std::move(sha256)) {}

void Session::run() {
  // Both threads end only with the process: one waits for input, the other runs as long as the
  // process lives.
  std::thread([this] { read_requests(); }).detach();
  std::thread([this] { beat(); }).detach();
  for (;;) {
    const std::string payload = next_request();
    try {
      const ConfigNode request = parsed(payload);
      if (request.at("verb").text() == "bye") {
        target_.reset();
        send({{"event", "bye"}});
        return;
      }
      answer(request);
    } catch (const std::exception& error) {
      send({{"event", "error"}, {"message", error.what()}});
    }
  }
}

void Session::read_requests() {
  FrameDecoder decoder;
  std::array<char, 1 << 16> bytes{};
  for (;;) {
    const ssize_t got = ::read(input_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) ::_exit(kOtherSideGone);
    decoder.feed({bytes.data(), static_cast<std::size_t>(got)});
    try {
      while (std::optional<std::string> payload = decoder.next()) {
        if (is_stop(*payload)) {
          stop_ = true;
          continue;
        }
        const std::lock_guard lock(mutex_);
        waiting_bytes_ += payload->size();
        if (requests_.size() == kMaxWaiting || waiting_bytes_ > kMaxWaitingBytes) {
          throw UserError({}, "too many requests wait", "");
        }
        requests_.push_back(std::move(*payload));
        stop_ = false;  // here, because a stop may arrive before the request is taken up
        changed_.notify_one();
      }
    } catch (const UserError& error) {
      stop_ = true;
      const std::lock_guard lock(mutex_);
      broken_ = error.what();
      changed_.notify_one();
      return;
    }
  }
}

void Session::beat() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kHeartbeatMs));
    send({{"event", "alive"}});
  }
}

std::string Session::next_request() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return broken_ || !requests_.empty(); });
  if (broken_) throw UserError(*broken_);
  std::string payload = std::move(requests_.front());
  requests_.pop_front();
  waiting_bytes_ -= payload.size();
  return payload;
}

void Session::send(const Json& event) {
  const std::string frame =
      encode_frame(event.dump(-1, ' ', false, Json::error_handler_t::replace));
  const std::lock_guard lock(output_mutex_);
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t written = ::write(output_, frame.data() + sent, frame.size() - sent);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(kOtherSideGone);
    sent += static_cast<std::size_t>(written);
  }
}

void Session::answer(const ConfigNode& request) {
  static const std::vector<std::pair<std::string, void (Session::*)(const ConfigNode&)>> kVerbs{
      {"hello", &Session::hello},  {"create", &Session::create},     {"open", &Session::open},
      {"probe", &Session::probe},  {"schedule", &Session::schedule}, {"replay", &Session::replay},
      {"remove", &Session::remove}};
  const ConfigNode verb = request.at("verb");
  const std::string name = verb.text();
  std::vector<std::string> names;
  for (const auto& [known, function] : kVerbs) {
    if (known == name) {
      if (!path_ && known != "hello") throw UserError(verb.place(), "comes before hello", "hello");
      (this->*function)(request);
      return;
    }
    names.push_back(known);
  }
  throw unknown_name(verb.place(), "verb", name, names);
}

void Session::hello(const ConfigNode& request) {
  static const std::vector<std::string> kMembers{"verb", "protocol", "target", "allow_destructive"};
  request.allow_only(kMembers);
  if (path_) throw UserError(request.place(), "a second hello", "one");
  (void)whole_number(request.at("protocol"), kProtocolVersion, kProtocolVersion);
  const std::string path = request.at("target").text();
  if (!path.starts_with('/') || path.find('\0') != std::string::npos) {
    throw UserError(request.at("target").place(), "is no absolute path", "/folder/file");
  }
  allow_destructive_ = truth(request.at("allow_destructive"));
  path_ = path;

  // The target may not exist yet.
  std::error_code ignored;
  const std::string existing = std::filesystem::exists(path, ignored)
                                   ? path
                                   : std::filesystem::path(path).parent_path().string();
  Json event{{"event", "hello"},
             {"protocol", kProtocolVersion},
             {"version", KVREPLAY_VERSION},
             {"sha256", sha256_},
             {"engines", engine_preference()},
             {"host", to_json(host_facts())},
             {"temperatures", to_json(temperatures())},
             {"file_system", file_system_of(existing)}};
  if (const auto free = free_bytes(existing)) event["free_bytes"] = *free;
  send(event);
}

void Session::create(const ConfigNode& request) {
  static const std::vector<std::string> kMembers{"verb", "bytes"};
  request.allow_only(kMembers);
  const std::uint64_t bytes = whole_number(request.at("bytes"), 1, kMaxFileBytes);
  target_.reset();
  std::int64_t next_ns = 0;
  target_.emplace(BlockTarget::create(*path_, bytes, [&](std::uint64_t done) {
    if (stop_) throw UserError({*path_, ""}, "interrupted while it was filled", "");
    constexpr std::int64_t kPauseNs = 200'000'000;
    if (monotonic_ns() < next_ns) return;
    next_ns = monotonic_ns() + kPauseNs;
    send({{"event", "progress"}, {"done", done}, {"total", bytes}});
  }));
  send_target();
}

void Session::open(const ConfigNode& request) {
  static const std::vector<std::string> kMembers{"verb", "write"};
  request.allow_only(kMembers);
  const bool write = truth(request.at("write"));
  if (write && !allow_destructive_) {
    throw UserError({*path_, ""}, "may only be read in this session", "--allow-destructive");
  }
  target_.reset();
  target_.emplace(write ? BlockTarget::open_destructive(*path_) : BlockTarget::open(*path_));
  send_target();
}

void Session::remove(const ConfigNode& request) {
  static const std::vector<std::string> kMembers{"verb"};
  request.allow_only(kMembers);
  target_.reset();
  send({{"event", "removed"}});
}

void Session::send_target() {
  send({{"event", "target"},
        {"size_bytes", target_->size_bytes()},
        {"offset_alignment_bytes", target_->alignment().offset_bytes}});
}

const BlockTarget& Session::target() const {
  if (!target_) throw UserError({*path_, ""}, "is not open", "create or open before");
  return *target_;
}

void Session::probe(const ConfigNode& request) {
  const ProbeRequest wanted = parse_probe_request(request.at("request"));
  const ProbeEnd end = run_probe(target(), wanted, stop_,
                                 {[this](const Json& setting) {
                                    send({{"event", "setting"}, {"setting", setting}});
                                  },
                                  [this](const Json& point) {
                                    send({{"event", "point"}, {"point", point}});
                                  }});
  send({{"event", "end"}, {"end", to_json(end)}});
}

void Session::schedule(const ConfigNode& request) {
  static const std::vector<std::string> kMembers{"verb", "begin", "text"};
  request.allow_only(kMembers);
  if (truth(request.at("begin"))) schedule_.clear();
  const std::string text = request.at("text").text();
  if (text.size() > kLongestText - schedule_.size()) {
    throw UserError(request.place(), "a schedule that is too long",
                    "up to " + std::to_string(kLongestText) + " bytes");
  }
  schedule_ += text;
  send({{"event", "received"}, {"bytes", schedule_.size()}});
}

void Session::replay(const ConfigNode& request) {
  const ReplayRequest wanted = parse_replay_request(request.at("request"));
  const Schedule schedule = Schedule::parse(schedule_, "schedule");
  const ReplayEnd end =
      replay_schedule(target(), schedule, wanted, {}, stop_,
                      {[this](const Json& setting) {
                         send({{"event", "setting"}, {"setting", setting}});
                       },
                       [this](const ReplayPart& part) {
                         send({{"event", "steps"}, {"part", kvreplay::to_json(part)}});
                       }});
  const std::string text = kvreplay::to_json(end.measurement);
  for (std::size_t at = 0; at < text.size(); at += kPieceBytes) {
    send({{"event", "measurement"}, {"text", text.substr(at, kPieceBytes)}});
  }
  send({{"event", "end"}, {"ended_by", end.ended_by}});
}

}  // namespace kvreplay
