#include "sim/live/live_target.hpp"

#include <algorithm>
#include <utility>

#include "devices/real/measuring_thread.hpp"

namespace kvreplay {

LiveRun run_live_on(std::shared_ptr<const Model> model, const SystemSpec& system,
                    const std::shared_ptr<const BlockTarget>& target, const LiveRequest& request,
                    const LiveOptions& options, std::shared_ptr<const AdapterSource> adapters,
                    const std::atomic<bool>& stop) {
  LiveRun run;
  LiveIo::Options io{.engine = {}, .limits = request.limits, .pages = request.pages};
  if (target) {
    io.limits.logical_block_bytes =
        std::max(io.limits.logical_block_bytes, target->alignment().offset_bytes);
    run.engine = choose_engine(*target, request.engine);
    io.engine = run.engine.name;
    if (io.engine == "sync") io.limits.queue_depth = 1;
  }
  const auto result = std::make_shared<LiveResult>();
  const auto unanswered = measure_in_thread(
      io.limits.queue_depth, static_cast<std::int64_t>(request.request_timeout_seconds * 1e9), stop,
      [model = std::move(model), system, target, io, options, adapters = std::move(adapters),
       result](Measuring& measuring) {
        LiveIo::Options watched = io;
        watched.watch = &measuring.watch;
        LiveOptions forwarded = options;
        forwarded.adapters = adapters.get();
        forwarded.stop = &measuring.stop;
        if (options.on_token) {
          forwarded.on_token = [&](std::int32_t id) {
            measuring.tell([id, tell = options.on_token] { tell(id); });
          };
        }
        *result = run_live(*model, system, target.get(), watched, forwarded);
      });
  if (unanswered) throw unanswered->to_error(target->path());
  run.result = std::move(*result);
  return run;
}

}  // namespace kvreplay
