#include "devices/remote/remote_device.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/hash.hpp"
#include "base/shell.hpp"
#include "devices/remote/messages.hpp"

namespace kvreplay {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

const std::atomic<bool> kNeverStop{false};
constexpr const char* kAgent = "kvreplay-agent-";
/// Largest delay before a stop is noticed.
constexpr milliseconds kSlice{100};

std::string read_whole(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  if (!stream) throw UserError({file, ""}, "cannot be read", "the agent's program");
  return bytes;
}

/// Agents for other machines, for an error message.
std::string agents_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kAgent)) names.push_back(name.substr(std::string(kAgent).size()));
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "--agent FILE" : join(names) + ", or --agent FILE";
}

}  // namespace

RemoteDevice::RemoteDevice(DeviceAddress address, RemoteOptions options)
    : address_(std::move(address)), options_(std::move(options)) {
  if (options_.folder.empty()) options_.folder = address_.transport->agent_folder();
  if (!options_.folder.starts_with('/') ||
      std::any_of(options_.folder.begin(), options_.folder.end(),
                  [](char c) { return static_cast<unsigned char>(c) < ' '; })) {
    throw UserError({"--agent-folder", ""}, "'" + options_.folder + "'", "an absolute path");
  }
  try {
    start();
  } catch (...) {
    end_quietly();
    throw;
  }
}

RemoteDevice::~RemoteDevice() {
  end_quietly();
}

void RemoteDevice::start() {
  // Our agents that were sent and never started are recognised by name and hash.
  const std::string pattern = shell_quoted(options_.folder) + "/" + kAgent;
  const std::string said = run_there("uname -m; for f in " + pattern +
                                         "*; do if [ -f \"$f\" ] && [ ! -L \"$f\" ] && [ -O \"$f\" "
                                         "]; then sha256sum \"$f\"; fi; done; true",
                                     "`uname -m`");
  std::istringstream lines(said);
  std::string machine;
  std::getline(lines, machine);
  while (!machine.empty() && machine.back() == '\r') machine.pop_back();

  std::string file = options_.agent;
  if (file.empty()) file = options_.agents + "/" + kAgent + machine;
  if (!std::filesystem::is_regular_file(file)) {
    throw UserError(place(), "no agent for machine '" + machine + "' (" + file + ")",
                    agents_in(options_.agents));
  }
  const std::string sha256 = sha256_file(file);
  const std::string remote = options_.folder + "/" + kAgent + sha256.substr(0, 16);
  bool is_there = false;
  std::string stale;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.find('/');
    if (name == std::string::npos) continue;
    if (line.substr(name) == remote && line.starts_with(sha256)) {
      is_there = true;
    } else {
      stale += " " + shell_quoted(line.substr(name));
    }
  }
  if (!stale.empty()) (void)run_there("rm -f --" + stale, "removing old agents");
  sent_agent_ = remote;
  if (!is_there) send_agent(file, remote);

  link_ = std::make_unique<ChildProcess>(
      address_.transport->shell(address_.transport->start_line(remote)));
  hello_ = std::make_unique<Json>(ask({{"verb", "hello"},
                                       {"protocol", kProtocolVersion},
                                       {"target", address_.path},
                                       {"allow_destructive", options_.allow_destructive}},
                                      "hello", kNeverStop));
  sent_agent_.clear();  // it has removed itself
  if (hello_->value("sha256", "") != sha256) {
    throw UserError(place(), "another agent answers than the one that was sent", "");
  }
}

std::string RemoteDevice::run_there(const std::string& line, const std::string& what,
                                    std::string_view input) {
  ChildProcess child(address_.transport->shell(line));
  const bool taken = child.write(input, options_.silence);
  child.close_input();
  std::string said;
  for (;;) {
    const std::optional<std::string> piece = child.read(options_.silence);
    if (!piece) break;
    if (piece->empty()) throw UserError(place(), what + ": no answer", "a device that answers");
    said += *piece;
    if (said.size() > kMaxFrameBytes) throw UserError(place(), what + ": endless output", "");
  }
  const std::optional<int> code = child.wait(options_.silence);
  if (code == 0 && taken) return said;
  std::string why = child.last_words();
  if (why.empty()) {
    why = code == 0 ? "not all of it was taken" : "exit code " + std::to_string(code.value_or(-1));
  }
  throw UserError(place(), what + " failed (" + why + ")", "");
}

void RemoteDevice::send_agent(const std::string& file, const std::string& remote) {
  const std::string quoted = shell_quoted(remote);
  // noclobber: where others may write too, nobody's link is followed. `adb push` is not used,
  // because it would create missing folders and leave them behind.
  (void)run_there("rm -f -- " + quoted + " && set -C && umask 077 && cat > " + quoted +
                      " && chmod 700 " + quoted,
                  "sending the agent to " + options_.folder + " (--agent-folder)",
                  read_whole(file));
}

void RemoteDevice::end_quietly() {
  try {
    if (link_ && hello_) {
      send({{"verb", "bye"}});
      (void)link_->wait(std::chrono::seconds(2));
    }
    link_.reset();
    if (!sent_agent_.empty()) {
      (void)run_there("rm -f -- " + shell_quoted(sent_agent_), "removing the agent");
    }
  } catch (const UserError&) {
    // The link is lost: a running agent has removed its file and ends by itself.
  }
}

UserError RemoteDevice::lost(const std::string& how) {
  std::string why = how;
  if (const std::optional<int> code = link_->wait(milliseconds(500))) {
    why += "; exit code " + std::to_string(*code);
  }
  if (!link_->last_words().empty()) why += "; " + link_->last_words();
  hello_.reset();  // nobody left to say bye to
  return {place(), "the agent is lost (" + why + ")", ""};
}

void RemoteDevice::send(const Json& request) {
  const std::string frame =
      encode_frame(request.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!link_->write(frame, options_.silence)) throw lost("it takes no request");
}

std::optional<RemoteDevice::Json> RemoteDevice::next_event(milliseconds patience) {
  for (;;) {
    std::optional<std::string> payload;
    try {
      payload = decoder_.next();
    } catch (const UserError& error) {
      throw lost(error.what());
    }
    if (payload) {
      Json event = Json::parse(*payload, nullptr, false);
      if (!event.is_object()) throw lost("an answer that is no event");
      return event;
    }
    const std::optional<std::string> bytes = link_->read(patience);
    if (!bytes)
      throw lost(decoder_.unfinished() ? "the link ended within a frame" : "the link ended");
    if (bytes->empty()) return std::nullopt;
    decoder_.feed(*bytes);
  }
}

RemoteDevice::Json RemoteDevice::ask(const Json& request, const std::string& last,
                                     const std::atomic<bool>& stop, const OnEvent& on_event) {
  send(request);
  bool stopped = false;
  steady_clock::time_point heard = steady_clock::now();
  for (;;) {
    if (stop && !stopped) {
      stopped = true;
      send({{"verb", "stop"}});
    }
    const std::optional<Json> event = next_event(kSlice);
    if (!event) {
      if (steady_clock::now() - heard < options_.silence) continue;
      throw lost("no sign of life for " + std::to_string(options_.silence.count() / 1000) + " s");
    }
    heard = steady_clock::now();
    try {
      const std::string name = event->at("event");
      if (name == "error") throw UserError(place(), event->at("message").get<std::string>(), "");
      if (name == last) return *event;
      if (name != "alive" && on_event) on_event(*event);
    } catch (const Json::exception&) {
      throw lost("an answer of another form");
    }
  }
}

void RemoteDevice::create(std::uint64_t bytes, const std::atomic<bool>& stop,
                          const std::function<void(std::uint64_t)>& on_progress) {
  (void)ask({{"verb", "create"}, {"bytes", bytes}}, "target", stop,
            [&](const Json& event) { on_progress(event.at("done").get<std::uint64_t>()); });
}

void RemoteDevice::open(bool write) {
  (void)ask({{"verb", "open"}, {"write", write}}, "target", kNeverStop);
}

ProbeEnd RemoteDevice::probe(const ProbeRequest& request, const std::atomic<bool>& stop,
                             const ProbeSink& sink) {
  const auto on_event = [&sink](const Json& event) {
    if (event.contains("setting")) {
      sink.on_setting(event["setting"]);
    } else {
      sink.on_point(event.at("point"));
    }
  };
  const Json end = ask({{"verb", "probe"}, {"request", to_json(request)}}, "end", stop, on_event);
  return parse_probe_end(ConfigNode::parse(end.dump(), name()).at("end"));
}

ReplayEnd RemoteDevice::replay(const Schedule& schedule, const ReplayRequest& request,
                               const std::atomic<bool>& stop, const ReplaySink& sink) {
  const std::string text = schedule.text();
  for (std::size_t at = 0; at < text.size(); at += kPieceBytes) {
    (void)ask({{"verb", "schedule"}, {"begin", at == 0}, {"text", text.substr(at, kPieceBytes)}},
              "received", kNeverStop);
  }
  std::string measured;
  ScheduleMeasurement so_far;
  const auto on_event = [&](const Json& event) {
    if (event.contains("setting")) {
      sink.on_setting(event["setting"]);
    } else if (event.at("event") == "steps") {
      const ReplayPart part = parse_replay_part(event.at("part"), name());
      add_part(part, name(), so_far);
      sink.on_part(part);
    } else {
      measured += event.at("text").get<std::string>();
      if (measured.size() > kLongestText) throw lost("an endless measurement");
    }
  };
  try {
    const Json end =
        ask({{"verb", "replay"}, {"request", to_json(request)}}, "end", stop, on_event);
    return {parse_schedule_measurement(measured, name()), end.value("ended_by", "")};
  } catch (const UserError& error) {
    if (so_far.steps.empty()) throw;
    return {std::move(so_far), error.what()};
  }
}

}  // namespace kvreplay
