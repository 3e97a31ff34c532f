#include "lib/passes/placement/spread_over_hosts.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/cost/forward_time.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/placement/divide_experts.h"
#include "lib/target/gpu_generation.h"

namespace ktx::passes {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Finds the boundaries between hosts. First the least time of the host that takes longest; then, of
// boundaries where none takes longer, those whose times differ least.
class Boundaries {
 public:
  Boundaries(std::span<const LayerLoad> layers, const LayerLoad& first,
             std::span<const HostRoom> hosts, bool by_memory)
      : layers_(layers.size()), first_(first), hosts_(hosts), by_memory_(by_memory) {
    sums_.emplace_back();
    for (const LayerLoad& layer : layers) {
      sums_.push_back(sums_.back());
      add(sums_.back(), layer, 1);
    }
  }

  // False where no boundaries fit the memory.
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

  // The seconds of a host with layers [begin, end); kNever where they do not fit.
  double seconds(size_t host, size_t begin, size_t end) const {
    LayerLoad load = sums_[end];
    add(load, sums_[begin], -1);
    if (host == 0) add(load, first_, 1);
    const HostRoom& room = hosts_[host];
    double left = load.kept_bytes;
    for (const HostRoom::Gpu& gpu : room.gpus) left -= gpu.room_bytes;
    if (by_memory_ && room.room_bytes > 0 && left > room.room_bytes) return kNever;
    return seconds(room, load);
  }

  // Its GPUs take turns, and then the CPU.
  static double seconds(const HostRoom& host, const LayerLoad& load) {
    const LayerLoad early{load.read_bytes - load.late_read_bytes,
                          load.kept_bytes - load.late_kept_bytes};
    const LayerLoad late{load.late_read_bytes, load.late_kept_bytes};
    std::vector<HostRoom::Gpu> gpus = host.gpus;
    double sum = 0;
    for (const LayerLoad& part : {early, late}) {
      double share = 1;  // that is left
      for (HostRoom::Gpu& gpu : gpus) {
        const double taken = std::min(part.kept_bytes * share, gpu.room_bytes);
        if (taken <= 0) continue;
        gpu.room_bytes -= taken;
        share -= taken / part.kept_bytes;
        sum += part.read_bytes * taken / part.kept_bytes / gpu.rate;
      }
      sum += part.read_bytes * std::max(share, 0.0) / host.rate;
    }
    return sum;
  }

  static void add(LayerLoad& sum, const LayerLoad& load, double times) {
    sum.read_bytes += times * load.read_bytes;
    sum.kept_bytes += times * load.kept_bytes;
    sum.late_read_bytes += times * load.late_read_bytes;
    sum.late_kept_bytes += times * load.late_kept_bytes;
  }

  const size_t layers_;
  const LayerLoad first_;
  const std::span<const HostRoom> hosts_;
  const bool by_memory_;
  double limit_ = kNever;        // seconds that no host may exceed
  std::vector<LayerLoad> sums_;  // of the first so many layers
};

// The bytes of the module's weights that a token reads.
double read_bytes(const ir::Module& module) {
  const auto bytes = static_cast<double>(placed_bytes(module));
  const auto* experts = std::get_if<ir::ExpertsInfo>(&module.info);
  if (experts != nullptr && experts->experts > 0) {
    return bytes * std::min(1.0, static_cast<double>(experts->top_k) / experts->experts);
  }
  return ir::kind_of(module.role) == ir::Kind::Embedding ? 0 : bytes;
}

// What a device uses for more than layers.
struct Reserves {
  double scratch = 0, cpu = 0;
};

std::vector<HostRoom::Gpu> gpu_rooms(const target::Target& target, size_t host, double scratch) {
  std::vector<HostRoom::Gpu> rooms;
  const std::string name = host == 0 ? "" : target.hosts[host].name;
  const std::vector<target::GpuTarget>& gpus = gpus_of(target, host);
  for (size_t i = 0; i < gpus.size(); ++i) {
    const double room = static_cast<double>(gpus[i].memory_bytes) - scratch - kGpuReserve;
    if (target::too_old(gpus[i]) || room <= 0) continue;
    const DeviceId device{name, DeviceId::Kind::Cuda, static_cast<int>(i)};
    rooms.push_back({rates_of(target, device).read, room});
  }
  std::ranges::stable_sort(rooms, std::greater(), &HostRoom::Gpu::rate);
  return rooms;
}

// Rates where all are known, else the memories where these are, else all alike.
std::vector<HostRoom> rooms_of(const target::Target& target, const Reserves& reserves) {
  std::vector<HostRoom> rooms;
  bool rates = true, memories = true;
  for (size_t h = 0; h < target.hosts.size(); ++h) {
    const target::HostTarget& host = target.hosts[h];
    const double read = rates_of(target, DeviceId{host.name}).read;
    const auto memory = static_cast<double>(host.cpu.memory_bytes);
    const double room = memory > 0 ? std::max(memory - reserves.scratch - reserves.cpu, 1.0) : 0;
    rooms.push_back({read, room, gpu_rooms(target, h, reserves.scratch)});
    rates = rates && read > 0 &&
            std::ranges::none_of(rooms.back().gpus, [](const auto& gpu) { return gpu.rate <= 0; });
    memories = memories && memory > 0;
  }
  for (HostRoom& room : rooms) {
    if (rates) continue;
    room.rate = memories ? room.room_bytes : 1;
    for (const HostRoom::Gpu& gpu : room.gpus) room.rate += memories ? gpu.room_bytes : 0;
    for (HostRoom::Gpu& gpu : room.gpus) gpu.rate = room.rate;
  }
  return rooms;
}

}  // namespace

std::vector<int> spread_layers(std::span<const LayerLoad> layers, const LayerLoad& first,
                               std::span<const HostRoom> hosts) {
  std::vector<int> host_of_layer;
  if (Boundaries(layers, first, hosts, true).run(host_of_layer)) return host_of_layer;
  Boundaries(layers, first, hosts, false).run(host_of_layer);
  return host_of_layer;
}

void spread_over_hosts(const PricedModel& model, const MemoryFormulas* formulas,
                       const std::vector<const ir::Module*>& open, Placement& placement) {
  const auto count = static_cast<size_t>(std::max(model.modules.facts.layers, 0));
  const auto of_layer = [&](const ir::Module& module) {
    return module.layer >= 0 && static_cast<size_t>(module.layer) < count;
  };
  std::vector<LayerLoad> layers(count);
  LayerLoad first;
  for (const ir::Module* module : open) {
    LayerLoad& load = of_layer(*module) ? layers[static_cast<size_t>(module->layer)] : first;
    const double read = read_bytes(*module);
    const auto kept = static_cast<double>(placed_bytes(*module));
    load.read_bytes += read;
    load.kept_bytes += kept;
    if (module->role == ir::Role::Experts || ir::kind_of(module->role) == ir::Kind::Embedding) {
      load.late_read_bytes += read;
      load.late_kept_bytes += kept;
    }
  }
  Reserves reserves;
  if (formulas != nullptr) {
    const Result<Estimate> all = memory_of(model, *formulas, placement);
    if (all && !all->devices.empty()) {
      const DeviceUse& use = all->devices.front();
      reserves = {static_cast<double>(use.scratch_bytes), static_cast<double>(use.reserve_bytes)};
      for (LayerLoad& layer : layers) {
        layer.kept_bytes +=
            static_cast<double>(use.kv_bytes + use.state_bytes) / static_cast<double>(count);
      }
    }
  }
  const std::vector<HostRoom> rooms = rooms_of(model.target, reserves);
  const std::vector<int> host_of_layer = spread_layers(layers, first, rooms);
  for (const ir::Module* module : open) {
    const int host = of_layer(*module) ? host_of_layer[static_cast<size_t>(module->layer)] : 0;
    if (host == 0) continue;
    placement.at(model.modules, *module).device.host =
        model.target.hosts[static_cast<size_t>(host)].name;
  }
  // Where there are GPUs, experts go to these first; to divide them is left to rules.
  if (formulas != nullptr && all_gpus(model.target).empty()) {
    divide_experts(model, *formulas, open, placement);
  }
}

}  // namespace ktx::passes
