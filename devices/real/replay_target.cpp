#include "devices/real/replay_target.hpp"

#include <nlohmann/json.hpp>

#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/probe.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

Schedule fit(const Schedule& schedule, std::uint64_t target_bytes, bool wrap,
             const std::string& target_name) {
  if (schedule.space_bytes() <= target_bytes) return schedule;
  if (wrap) return schedule.wrapped(target_bytes);
  throw UserError({target_name, ""},
                  "has " + std::to_string(target_bytes) + " bytes, but the plan uses " +
                      std::to_string(schedule.space_bytes()),
                  "a larger target, or --wrap");
}

ReplayEnd replay_schedule(const BlockTarget& target, const Schedule& whole,
                          const ReplayRequest& request,
                          const std::function<void(std::int64_t)>& compute,
                          const std::atomic<bool>& stop, const ReplaySink& sink) {
  const Schedule schedule = fit(whole, target.size_bytes(), request.wrap, target.path());
  const std::uint32_t block = target.alignment().offset_bytes;
  if (schedule.limits().logical_block_bytes % block != 0) {
    throw UserError({target.path(), ""},
                    "takes multiples of " + std::to_string(block) + " bytes, but the plan is for " +
                        std::to_string(schedule.limits().logical_block_bytes),
                    "--set device.logical_block_bytes=" + std::to_string(block));
  }
  check(target, schedule);

  const EngineChoice choice = choose_engine(target, request.engine);
  std::uint32_t depth = request.depth > 0 ? request.depth : schedule.limits().queue_depth;
  if (choice.name == "sync" && request.depth == 0) depth = 1;
  const EngineWithMemory io(choice.name, target, memory_bytes(schedule, depth), request.pages,
                            depth);
  fill_random(io.memory(), 1);

  Json setting;
  setting["target"] = {{"path", target.path()},
                       {"kind", target.is_block_device() ? "block device" : "file"},
                       {"size_bytes", target.size_bytes()},
                       {"offset_alignment_bytes", block},
                       {"direct_io_proof", target.direct_io_proof()},
                       {"file_system", file_system_of(target.descriptor_path())}};
  setting["engine"] = {{"name", choice.name},
                       {"depth", depth},
                       {"notes", notes_of(io.engine(), request.pages)},
                       {"refused", Json::array()}};
  for (const auto& [name, reason] : choice.refused) {
    setting["engine"]["refused"].push_back({{"engine", name}, {"reason", reason}});
  }
  setting["host"] = to_json(host_facts());
  sink.on_setting(setting);

  ReplayEnd end;
  end.measurement = run_schedule(
      io.engine(), schedule,
      {.depth = depth,
       .compute = compute,
       .stop = &stop,
       .on_step = sink.on_step,
       .patience_ns = static_cast<std::int64_t>(request.request_timeout_seconds * 1e9)});
  if (end.measurement.interrupted) end.ended_by = "interrupted";
  if (end.measurement.failure) end.ended_by = end.measurement.failure->to_error(target).what();
  return end;
}

}  // namespace kvreplay
