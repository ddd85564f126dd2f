#include "devices/remote/remote_device.hpp"

#include <algorithm>
#include <cctype>
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
constexpr std::size_t kHashDigits = 16;  ///< of the agent's hash, in its name on a device
/// Largest delay before a stop is noticed.
constexpr milliseconds kSlice{100};

std::string read_whole(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  if (!stream) throw UserError({file, ""}, "cannot be read", "the agent's program");
  return bytes;
}

/// Words of a device, in an error message.
std::string excerpt(const std::string& text) {
  constexpr std::size_t kLongest = 1000;
  return text.size() > kLongest ? text.substr(0, kLongest) + " ..." : text;
}

/// What `uname -m` may print: it becomes part of a file's name here.
bool is_machine(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

/// Whether the path on a device is one that send_agent() may have written there.
bool is_sent_agent(std::string_view path, const std::string& folder) {
  const std::string beginning = folder + "/" + kAgent;
  return path.starts_with(beginning) && path.size() == beginning.size() + kHashDigits &&
         path.find_first_not_of("0123456789abcdef", beginning.size()) == path.npos;
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
  if (!is_machine(machine)) {
    throw UserError(place(), "`uname -m` printed '" + excerpt(machine) + "'", "a name");
  }

  std::string file = options_.agent;
  if (file.empty()) file = options_.agents + "/" + kAgent + machine;
  if (!std::filesystem::is_regular_file(file)) {
    throw UserError(place(), "no agent for machine '" + machine + "' (" + file + ")",
                    agents_in(options_.agents));
  }
  const std::string sha256 = sha256_file(file);
  const std::string remote = options_.folder + "/" + kAgent + sha256.substr(0, kHashDigits);
  bool is_there = false;
  std::string stale;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::string path = line.substr(begin);
    if (path == remote && line.starts_with(sha256)) {
      is_there = true;
    } else if (is_sent_agent(path, options_.folder)) {  // nothing else is ever removed
      stale += " " + shell_quoted(path);
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
  if (!hello_->contains("sha256") || hello_->at("sha256") != sha256) {
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
  } catch (const std::exception&) {
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
  return {place(), "the agent is lost (" + excerpt(why) + ")", ""};
}

void RemoteDevice::send(const Json& request) {
  const std::string frame =
      encode_frame(request.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!link_->write(frame, options_.silence)) throw lost("it takes no request");
}

std::optional<RemoteDevice::Json> RemoteDevice::next_event(milliseconds patience) {
  for (;;) {
    try {
      if (const std::optional<std::string> payload = decoder_.next()) {
        return parse_event(*payload);
      }
    } catch (const UserError& error) {
      throw lost(error.what());
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
      if (name == "error") {
        throw UserError(place(), excerpt(event->at("message").get<std::string>()), "");
      }
      if (name == last) return *event;
      if (name != "alive" && on_event) on_event(*event);
    } catch (const Json::exception&) {
      throw lost("an answer of another form");
    }
  }
}

void RemoteDevice::take_setting(const Json& setting, bool& has_setting,
                                const std::function<void(const Json&)>& on_setting) {
  if (has_setting) throw lost("a second setting");
  check_setting(setting, name());
  has_setting = true;
  on_setting(setting);
}

void RemoteDevice::create(std::uint64_t bytes, const std::atomic<bool>& stop,
                          const std::function<void(std::uint64_t)>& on_progress) {
  (void)ask({{"verb", "create"}, {"bytes", bytes}}, "target", stop, [&](const Json& event) {
    on_progress(std::min(bytes, event.at("done").get<std::uint64_t>()));
  });
}

void RemoteDevice::open(bool write) {
  (void)ask({{"verb", "open"}, {"write", write}}, "target", kNeverStop);
}

ProbeEnd RemoteDevice::probe(const ProbeRequest& request, const std::atomic<bool>& stop,
                             const ProbeSink& sink) {
  bool has_setting = false;
  std::size_t points = 0;
  const auto on_event = [&](const Json& event) {
    if (event.contains("setting")) {
      take_setting(event["setting"], has_setting, sink.on_setting);
    } else {
      if (!has_setting) throw lost("a point before the setting");
      if (points++ == request.grid.points()) throw lost("more points than were asked for");
      if (!event.at("point").is_object()) throw lost("a point that is none");
      sink.on_point(event["point"]);
    }
  };
  const Json end = ask({{"verb", "probe"}, {"request", to_json(request)}}, "end", stop, on_event);
  if (!has_setting) throw lost("an end without a setting");
  ProbeEnd parsed = parse_probe_end(ConfigNode::parse(end.dump(), name()).at("end"));
  parsed.ended_by = excerpt(parsed.ended_by);
  return parsed;
}

ReplayEnd RemoteDevice::replay(const Schedule& schedule, const ReplayRequest& request,
                               const std::atomic<bool>& stop, const ReplaySink& sink) {
  const std::string text = schedule.text();
  for (std::size_t at = 0; at < text.size(); at += kPieceBytes) {
    (void)ask({{"verb", "schedule"}, {"begin", at == 0}, {"text", text.substr(at, kPieceBytes)}},
              "received", kNeverStop);
  }
  bool has_setting = false;
  std::string measured;
  ScheduleMeasurement so_far;
  const auto on_event = [&](const Json& event) {
    if (event.contains("setting")) {
      take_setting(event["setting"], has_setting, sink.on_setting);
    } else if (!has_setting) {
      throw lost("a measurement before the setting");
    } else if (event.at("event") == "steps") {
      const ReplayPart part = parse_replay_part(event.at("part"), name());
      check_measurement(part.measured, schedule, so_far.steps.size(), part.first_request, name());
      add_part(part, name(), so_far);
      sink.on_part(part);
    } else {
      measured += event.at("text").get<std::string>();
      if (measured.size() > longest_measurement(schedule)) throw lost("an endless measurement");
    }
  };
  try {
    const Json end =
        ask({{"verb", "replay"}, {"request", to_json(request)}}, "end", stop, on_event);
    if (!has_setting) throw lost("an end without a setting");
    ReplayEnd replayed{parse_schedule_measurement(measured, name()),
                       excerpt(ConfigNode::parse(end.dump(), name()).at("ended_by").text())};
    check_measurement(replayed.measurement, schedule, 0, 0, name());
    if (replayed.ended_by.empty() && replayed.measurement.steps.size() < schedule.steps()) {
      throw lost("an end before the last step");
    }
    return replayed;
  } catch (const UserError& error) {
    if (so_far.steps.empty()) throw;
    return {std::move(so_far), error.what()};
  }
}

}  // namespace kvreplay
