#include "lib/passes/spread_over_hosts.h"

#include <algorithm>
#include <limits>

#include "lib/passes/divide_experts.h"
#include "lib/passes/estimate.h"
#include "lib/passes/pass_time.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Finds the borders between hosts. First the least time of the host that takes longest; then, of
// borders where none takes longer, those whose times differ least.
class Borders {
 public:
  Borders(std::span<const LayerLoad> layers, const LayerLoad& first,
          std::span<const HostRoom> hosts, bool by_memory)
      : layers_(layers.size()), first_(first), hosts_(hosts), by_memory_(by_memory) {
    sums_.emplace_back();
    for (const LayerLoad& layer : layers) {
      sums_.push_back(
          {sums_.back().read_bytes + layer.read_bytes, sums_.back().kept_bytes + layer.kept_bytes});
    }
  }

  // False where no borders fit the memory.
  bool run(std::vector<int>& host_of_layer) {
    const auto longest = [](double before, double own) { return std::max(before, own); };
    const auto squares = [](double before, double own) { return before + own * own; };
    limit_ = kNever;
    limit_ = least(longest, host_of_layer) * (1 + 1e-9);
    if (limit_ == kNever) return false;
    least(squares, host_of_layer);
    return true;
  }

 private:
  // best[l] is the least `join` of the times of the hosts so far with the first l layers.
  template <class Join>
  double least(const Join& join, std::vector<int>& host_of_layer) const {
    std::vector<std::vector<size_t>> from(hosts_.size(), std::vector<size_t>(layers_ + 1));
    std::vector<double> best(layers_ + 1, kNever), next;
    best[0] = 0;
    for (size_t h = 0; h < hosts_.size(); ++h) {
      next.assign(layers_ + 1, kNever);
      for (size_t begin = 0; begin <= layers_; ++begin) {
        for (size_t end = begin; end <= layers_ && best[begin] < kNever; ++end) {
          const double own = seconds(h, begin, end);
          const double joined = own > limit_ ? kNever : join(best[begin], own);
          if (joined >= next[end]) continue;
          next[end] = joined;
          from[h][end] = begin;
        }
      }
      best.swap(next);
    }
    if (best[layers_] == kNever) return kNever;
    host_of_layer.assign(layers_, 0);
    size_t end = layers_;
    for (size_t h = hosts_.size(); h-- > 0;) {
      const size_t begin = from[h][end];
      std::fill(host_of_layer.begin() + static_cast<ptrdiff_t>(begin),
                host_of_layer.begin() + static_cast<ptrdiff_t>(end), static_cast<int>(h));
      end = begin;
    }
    return best[layers_];
  }

  // Of a host with layers [begin, end); never where they do not fit.
  double seconds(size_t host, size_t begin, size_t end) const {
    LayerLoad load{sums_[end].read_bytes - sums_[begin].read_bytes,
                   sums_[end].kept_bytes - sums_[begin].kept_bytes};
    if (host == 0) {
      load.read_bytes += first_.read_bytes;
      load.kept_bytes += first_.kept_bytes;
    }
    const HostRoom& room = hosts_[host];
    if (by_memory_ && room.room_bytes > 0 && load.kept_bytes > room.room_bytes) return kNever;
    return load.read_bytes / room.rate;
  }

  const size_t layers_;
  const LayerLoad first_;
  const std::span<const HostRoom> hosts_;
  const bool by_memory_;
  double limit_ = kNever;        // seconds that no host may exceed
  std::vector<LayerLoad> sums_;  // of the first so many layers
};

// Of its weights, what a token reads.
double read_bytes(const ir::Module& module) {
  const auto bytes = static_cast<double>(placed_bytes(module));
  const auto* experts = std::get_if<ir::ExpertsInfo>(&module.info);
  if (experts != nullptr && experts->experts > 0) {
    return bytes * std::min(1.0, static_cast<double>(experts->top_k) / experts->experts);
  }
  return ir::kind_of(module.role) == ir::Kind::Embedding ? 0 : bytes;
}

// Rates where all are known, else the memories where these are, else all alike.
std::vector<HostRoom> rooms_of(const target::Target& target, double reserve) {
  std::vector<HostRoom> rooms;
  bool rates = true, memories = true;
  for (const target::HostTarget& host : target.hosts) {
    const double read = rates_of(target, target::device_on(host.name, "cpu")).read;
    const auto memory = static_cast<double>(host.cpu.memory_bytes);
    rooms.push_back({read, memory > 0 ? std::max(memory - reserve, 1.0) : 0});
    rates = rates && read > 0;
    memories = memories && memory > 0;
  }
  for (HostRoom& room : rooms) {
    if (!rates) room.rate = memories ? room.room_bytes : 1;
  }
  return rooms;
}

}  // namespace

std::vector<int> spread_layers(std::span<const LayerLoad> layers, const LayerLoad& first,
                               std::span<const HostRoom> hosts) {
  std::vector<int> host_of_layer;
  if (Borders(layers, first, hosts, true).run(host_of_layer)) return host_of_layer;
  Borders(layers, first, hosts, false).run(host_of_layer);
  return host_of_layer;
}

void spread_over_hosts(CompileState& state, const std::vector<ir::Module*>& open) {
  const auto count = static_cast<size_t>(std::max(state.modules.facts.layers, 0));
  std::vector<LayerLoad> layers(count);
  LayerLoad first;
  for (ir::Module* module : open) {
    const bool of_layer = module->layer >= 0 && static_cast<size_t>(module->layer) < count;
    LayerLoad& load = of_layer ? layers[static_cast<size_t>(module->layer)] : first;
    load.read_bytes += read_bytes(*module);
    load.kept_bytes += static_cast<double>(placed_bytes(*module));
    module->decision.device = "cpu";
  }
  double reserve = 0;
  if (const Result<Estimator> estimator = Estimator::make(state)) {
    if (const Result<Estimate> all = estimator->run(state); all && !all->devices.empty()) {
      const DeviceUse& use = all->devices.front();
      reserve = static_cast<double>(use.scratch_bytes + use.reserve_bytes);
      for (LayerLoad& layer : layers) {
        layer.kept_bytes +=
            static_cast<double>(use.kv_bytes + use.state_bytes) / static_cast<double>(count);
      }
    }
  }
  const std::vector<HostRoom> rooms = rooms_of(state.target, reserve);
  const std::vector<int> host_of_layer = spread_layers(layers, first, rooms);
  for (ir::Module* module : open) {
    const bool of_layer = module->layer >= 0 && static_cast<size_t>(module->layer) < count;
    const int host = of_layer ? host_of_layer[static_cast<size_t>(module->layer)] : 0;
    if (host == 0) continue;
    const std::string& name = state.target.hosts[static_cast<size_t>(host)].name;
    module->decision.device = target::device_on(name, "cpu");
  }
  divide_experts(state, open);
}

}  // namespace ktx::passes
