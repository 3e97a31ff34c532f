#include "lib/runtime/gpu/gpu_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "lib/program/program.h"
#include "lib/runtime/gpu/boundary_values.h"
#include "lib/runtime/gpu/gpu_fit.h"
#include "lib/runtime/gpu/gpu_graphs.h"
#include "lib/runtime/gpu/gpu_sums.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

// Whether each GPU holds what is its; without room to stream experts where `streams` is false.
Status check_all(const GpuState& s, const std::vector<plan::DeviceMemory>& needs, bool streams) {
  for (const GpuDevice& device : s.devices) {
    for (plan::DeviceMemory need : needs) {
      if (need.name != device.name) continue;
      if (!streams) need.stream_bytes = 0;
      KTX_TRY(check_gpu_fit(need, device.gpu->facts(), s.setup.shape, s.setup.kv_blocks));
    }
  }
  return {};
}

// Experts are streamed by the slots of the plan, or the largest below them that fit; where none do,
// the CPU computes them always.
Status check_fit_and_choose_slots(GpuState& s) {
  s.stream_slots = plan::stream_slots(s.plan.facts.stream_slots).value_or(s.stream_slots);
  std::vector<plan::DeviceMemory> needs =
      KTX_TRY(plan::memory_by_device(s.plan, s.setup.shape, s.stream_slots));
  const Status fits = check_all(s, needs, true);
  const auto most = std::ranges::max_element(needs, {}, &plan::DeviceMemory::stream_bytes);
  if (fits || most->stream_bytes == 0) return fits;
  const uint64_t planned = most->stream_bytes;
  const plan::StreamSlots plans = s.stream_slots;
  for (const plan::StreamSlots slots : plan::kStreamSlots) {
    if (slots <= plans) continue;
    needs = KTX_TRY(plan::memory_by_device(s.plan, s.setup.shape, slots));
    if (!check_all(s, needs, true)) continue;
    s.stream_slots = slots;
    s.notes.push_back(fmt::format("experts are streamed by {}: by {} that would take {} of a GPU",
                                  plan::name(slots), plan::name(plans), human_bytes(planned)));
    return {};
  }
  if (!check_all(s, needs, false)) return fits;
  s.room_to_stream = false;
  const auto least = std::ranges::max_element(needs, {}, &plan::DeviceMemory::stream_bytes);
  s.notes.push_back(fmt::format(
      "warning: long prompts are computed by the CPU alone: {} has no room for the {} that experts "
      "need to be streamed; a lower --ctx, --max-batch or --chunk makes room",
      least->name, human_bytes(least->stream_bytes)));
  return {};
}

Status open_devices(GpuState& s) {
  s.buckets = GpuBuckets(s.setup.shape.max_batch, s.setup.shape.ctx);
  const GpuBatchStates states{std::max(s.setup.shape.max_batch, s.buckets.largest_batch()),
                              static_cast<int64_t>(s.setup.kv_blocks.states)};
  s.batch_layout =
      GpuBatchLayout(s.setup.shape.step_tokens, s.setup.shape.step_outputs, s.setup.shape.max_batch,
                     s.setup.shape.ctx, s.kv.kinds(), states, GpuBatchImages::of(s.plan));
  for (const std::string& name : s.parts.gpus) {
    const int number = gpu_number(name);
    if (number < 0) {
      return Error{
          fmt::format("the plan has steps on '{}', which is no device of this version; "
                      "devices are cpu and cuda:N",
                      printable(name))};
    }
    GpuDevice& device = s.devices.emplace_back();
    device.name = name;
    device.gpu =
        KTX_TRY(device.named((s.setup.open_gpu ? s.setup.open_gpu : OpenGpu(open_gpu))(number)));
    KTX_TRY(check_gpu_generation(name, device.gpu->facts()));
  }
  return check_fit_and_choose_slots(s);
}

Status allocate_host(GpuState& s) {
  s.host_batch =
      KTX_TRY(Arena::allocate(static_cast<uint64_t>(s.batch_layout.bytes()), "inputs of a step"));
  GpuDevice& first = s.devices[0];
  for (const Arena* arena : {&s.host.memory, static_cast<const Arena*>(&s.host_batch)}) {
    s.pins.push_back(std::make_unique<PinnedMemory>());
    const Status pinned = s.pins.back()->pin(*first.gpu, arena->data(), arena->size());
    if (pinned) continue;
    s.pinned = false;
    s.notes.push_back(
        fmt::format("warning: main memory cannot be pinned, so that copies between it and {} are "
                    "slower: {}; a limit on locked memory (ulimit -l) may be the cause",
                    first.name, pinned.error().message));
    break;
  }
  return {};
}

Status allocate_device(const GpuState& s, GpuDevice& device) {
  Gpu& gpu = *device.gpu;
  device.has_slot = plan::slots_on(s.plan, device.name);
  device.slots =
      KTX_TRY(KvPools::create(s.program.kv_slots, s.setup.shape.kv_type, {}, device.has_slot));
  device.layout = KTX_TRY(plan::lay_out_device_arena(s.plan, device.name, s.setup.shape.step_tokens,
                                                     s.setup.shape.step_outputs));
  device.image = lay_out_weights(s.plan, device.name);
  device.weights = KTX_TRY(gpu.allocate(device.image.bytes, "weights"));
  device.arena = KTX_TRY(gpu.allocate(device.layout.total_bytes, "activations"));
  for (const SequenceKind kind : kBlockKinds) {
    const auto block_bytes = static_cast<uint64_t>(device.slots.of(kind).block_bytes());
    device.kv[kind] = KTX_TRY(gpu.allocate(block_bytes * s.setup.kv_blocks[kind], "KV cache"));
  }
  device.state_layout = plan::state_layout(s.plan, device.name);
  device.state_parts = plan::state_parts(s.plan, device.name);
  device.states =
      KTX_TRY(gpu.allocate(device.state_layout.bytes() * s.setup.kv_blocks.states, "states"));
  device.batch =
      KTX_TRY(gpu.allocate(static_cast<uint64_t>(s.batch_layout.bytes()), "inputs of a step"));
  KTX_TRY(gpu.clear(device.arena.data(), device.arena.size()));
  for (const SequenceKind kind : kBlockKinds) {
    KTX_TRY(gpu.clear(device.kv[kind].data(), device.kv[kind].size()));
  }
  device.blobs.assign(s.program.blobs.size(), nullptr);
  for (const WeightImage::Blob& blob : device.image.blobs) {
    device.blobs[blob.blob] = device.weights.data() + blob.offset;
  }
  device.inputs = s.batch_layout.at(device.batch.data());
  if (s.setup.count_experts && s.setup.expert_counts->size() > 0) {
    const uint64_t bytes = s.setup.expert_counts->size() * sizeof(uint64_t);
    device.expert_counts = KTX_TRY(gpu.allocate(bytes, "counts of experts"));
    KTX_TRY(gpu.clear(device.expert_counts.data(), bytes));
  }
  return {};
}

// Places of what goes from GPU to GPU between hosts, where all GPUs that have any can have links.
Status place_boundaries(GpuState& s) {
  if (s.setup.gpu_links == GpuLinks::Off || s.setup.hosts == nullptr) return {};
  const std::vector<BoundaryValue> values =
      boundary_values(s.plan, s.parts, gpu_boundaries(s.plan, s.parts));
  std::vector<GpuDevice*> devices;
  for (const BoundaryValue& boundary : values) {
    const auto device = std::ranges::find(s.devices, boundary.gpu, &GpuDevice::name);
    if (device == s.devices.end()) return {};
    const Status can = device->gpu->check_links();
    if (!can) {
      s.notes.push_back(
          fmt::format("values cross between hosts by way of host memory: {}", can.error().message));
      return {};
    }
    devices.push_back(&*device);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bytes = most_value_bytes(s.program.values[values[i].value], s.setup.shape);
    Gpu& gpu = *devices[i]->gpu;
    s.boundary_memory.push_back(
        KTX_TRY(devices[i]->named(gpu.allocate(bytes, "values for other hosts"))));
    KTX_TRY(devices[i]->named(gpu.clear(s.boundary_memory.back().data(), bytes)));
    s.boundary_places[values[i].value] = {&gpu, s.boundary_memory.back().data()};
  }
  return {};
}

// What this GPU, program and run have of what launches may need.
uint32_t needs_met(const GpuState& s, const GpuDevice& device) {
  const bool half = s.setup.shape.kv_type != plan::KvType::F32;
  return device.gpu->facts().has | (half ? kernels::kNeedsHalfCache : kernels::kNeedsNothing);
}

// The device's counters of the last step of a launch; null: it has none.
uint64_t* counts_of(const GpuState& s, const GpuDevice& device, const program::Launch& launch) {
  if (device.expert_counts.size() == 0) return nullptr;
  const int64_t first = s.setup.expert_counts->first(static_cast<uint32_t>(launch.steps.back()));
  auto* const counts = reinterpret_cast<uint64_t*>(device.expert_counts.data());
  return first < 0 ? nullptr : counts + first;
}

// `streamed`: of a step of the CPU.
GpuBindContext bind_context(const GpuState& s, const GpuDevice& device,
                            const program::Launch& launch, bool streamed) {
  const ExpertStreams* const streams = streamed ? device.streams.get() : nullptr;
  return {s.plan,
          s.program.steps[launch.steps.back()],
          streams ? streams->arena() : device.arena.data(),
          streams ? streams->buffer_offsets() : device.layout.offsets,
          streams ? streams->blobs() : device.blobs,
          device.slots,
          device.first_blocks(),
          device.states_of_texts(),
          device.inputs,
          launch,
          streamed,
          counts_of(s, device, launch)};
}

Status bind_launches(GpuState& s, GpuDevice& device, std::span<const program::Launch> all) {
  device.launches = BoundLaunches(s.program);
  const int sm = target::generation(device.gpu->facts());
  const uint32_t has = needs_met(s, device);
  uint32_t missed = 0;
  const auto is_for = [&](const program::Launch& launch) {
    const auto last = static_cast<uint32_t>(launch.steps.back());
    const bool here = s.program.steps[last].device == device.name ||
                      (device.streams && device.streams->computes(last));
    if (!here || sm < launch.least_sm || sm > launch.most_sm) {
      return false;
    }
    // One kernel chooses and computes: it counts nothing.
    const bool chooses = launch.op == FusedOp::Experts || launch.op == FusedOp::SharedExperts;
    if (chooses && device.expert_counts.size() > 0) return false;
    missed |= launch.needs & ~has;
    return (launch.needs & ~has) == 0;
  };
  for (bool fused : {false, true}) {
    for (const program::Launch& launch : all) {
      if (launch.op.has_value() != fused || !is_for(launch)) continue;
      const auto last = static_cast<uint32_t>(launch.steps.back());
      const bool streamed = device.streams && device.streams->computes(last);
      const Status bound =
          device.launches.add(launch, *device.gpu, bind_context(s, device, launch, streamed));
      if (!bound) return s.in_step(last, device.name, bound.error());
    }
  }
  if (missed != 0) {
    s.notes.push_back(fmt::format("{}: no {} here; the plan's launches without it are used",
                                  device.name, kernels::needs_text(missed)));
  }
  return {};
}

// Streamed weights in pinned memory, all of them in one piece.
Status pin_streamed(GpuState& s, std::span<const program::Stream> streams) {
  constexpr uint64_t kPage = 4096;
  uint64_t begin = UINT64_MAX, end = 0;
  for (const program::Stream& stream : streams) {
    for (int32_t blob : stream.products) {
      const auto bytes = s.plan.blob_bytes(static_cast<uint32_t>(blob));
      const auto offset = static_cast<uint64_t>(bytes.data() - s.plan.file.data());
      begin = std::min(begin, offset / kPage * kPage);
      end = std::max(end, offset + bytes.size());
    }
  }
  const Timer timer;
  s.pins.push_back(std::make_unique<PinnedMemory>());
  const Status pinned =
      s.pins.back()->pin_read_only(*s.devices[0].gpu, s.plan.file.data() + begin, end - begin);
  s.notes.push_back(
      pinned
          ? fmt::format("experts of {} pinned for prompts of {} tokens and more "
                        "in {:.2f} s",
                        human_bytes(end - begin), s.stream_tokens, timer.seconds())
          : fmt::format(
                "warning: experts are streamed from memory that cannot be pinned, at a fraction of the speed: {}",
                pinned.error().message));
  return {};
}

Status start_streams(GpuState& s) {
  s.taken.resize(s.parts.parts.size());
  std::vector<program::Stream> streams(s.plan.streams.begin(), s.plan.streams.end());
  std::erase_if(streams, [](const program::Stream& stream) {
    return !target::is_first_host(stream.device);  // of another host
  });
  if (streams.empty() || !s.room_to_stream) return {};
  for (size_t d = 0; d < s.devices.size(); ++d) {
    GpuDevice& device = s.devices[d];
    device.streams = KTX_TRY(device.named(ExpertStreams::create(
        s.plan, streams, device.name, s.setup.shape, s.stream_slots, *device.gpu)));
    if (!device.streams) continue;
    s.stream_tokens = device.streams->least_tokens();
    s.joint_tokens = s.plan.facts.joint_tokens;
    for (uint32_t part : device.streams->parts()) {
      Part& own = s.taken[part].emplace(s.parts.parts[part]);
      own.kind = Part::Kind::Gpu;
      own.device = static_cast<int>(d);
    }
  }
  return s.stream_tokens > 0 ? pin_streamed(s, streams) : Status();
}

Status start_guests(GpuState& s) {
  if (s.setup.guests == nullptr) return {};
  std::vector<StreamingGpu> streaming;
  for (GpuDevice& device : s.devices) {
    if (device.streams) streaming.push_back({device.gpu.get(), device.streams.get()});
  }
  for (GpuDevice& device : s.devices) {
    device.guests = KTX_TRY(device.named(GuestCopies::create(
        {s.plan, *s.setup.guests, device.name, device.blobs, streaming, s.setup.experts, s.pool},
        *device.gpu)));
  }
  const int64_t slots = s.setup.guests->use().slots, fixed = s.setup.guests->fixed_layers();
  s.notes.push_back(fmt::format("{} slots on GPUs for experts that are used most", slots));
  if (fixed > 0) {
    s.notes.push_back(fmt::format(
        "experts of {} layers stay in their slots: they are larger than {} MiB, or their format in "
        "main memory has no copy for a GPU",
        fixed, kMostGuestBytes >> 20));
  }
  return {};
}

Status place_logits(GpuState& s) {
  if (s.parts.logits_device < 0) return {};
  GpuDevice& device = s.devices[s.parts.logits_device];
  const program::ValueId value = s.program.input(s.parts.logits_step, 0);
  return device.named(s.logits.emplace().allocate(
      *device.gpu, {.device = s.place(s.parts.logits_device, value),
                    .host = s.place(-1, s.plan.facts.logits_value),
                    .row_bytes = program::row_bytes(s.program.values[value]),
                    .vocabulary = s.plan.facts.output_width(),
                    .most_rows = s.setup.shape.step_outputs}));
}

// The largest that any step asks for: over the buckets, and over chunks up to the largest.
Status allocate_workspace(const GpuState& s, GpuDevice& device) {
  std::vector<GpuShape> shapes;
  for (int i = 0; i < s.buckets.count(); ++i) shapes.push_back(s.buckets.shape(i));
  for (int64_t positions : s.buckets.position_buckets()) {
    for (bool each : {false, true}) {
      shapes.push_back({s.setup.shape.step_tokens, s.setup.shape.step_outputs, positions, each});
    }
  }
  int64_t most = 0;
  for (const GpuShape& shape : shapes) {
    most = std::max({most, device.launches.workspace_bytes(shape), sum_bytes(s, shape)});
  }
  if (s.logits && &device == &s.devices[s.parts.logits_device]) {
    most = std::max(most, s.logits->workspace_bytes());
  }
  auto memory = device.gpu->allocate(static_cast<uint64_t>(most), "partial results");
  if (!memory) {
    return Error{fmt::format("{}; chunks of {} tokens need it: a smaller --chunk needs less",
                             memory.error().message, s.setup.shape.step_tokens)};
  }
  device.workspace = memory.take();
  return {};
}

// What to tell of it.
Result<std::string> upload(const GpuState& s, GpuDevice& device) {
  const Timer timer;
  KTX_TRY(device.named(
      upload_weights(s.plan, device.image, *device.gpu, device.weights.data(), s.pool)));
  const double seconds = timer.seconds();
  return fmt::format("{} ({}): {} of weights in {:.2f} s ({:.1f} GB/s)", device.name,
                     printable(device.gpu->facts().name), human_bytes(device.image.bytes), seconds,
                     seconds > 0 ? static_cast<double>(device.image.bytes) / seconds / 1e9 : 0.0);
}

// Graphs are captured and libraries started while weights go up: none needs the others.
Status upload_and_capture(GpuState& s) {
  Status uploaded, started;
  std::vector<std::string> notes;
  std::jthread uploads([&] {
    uploaded = [&]() -> Status {
      for (GpuDevice& device : s.devices) notes.push_back(KTX_TRY(upload(s, device)));
      return {};
    }();
  });
  std::jthread libraries([&] {
    started = [&]() -> Status {
      for (GpuDevice& device : s.devices) {
        if (!device.launches.need(kernels::kNeedsCublas, s.setup.shape)) continue;
        KTX_TRY(device.named(device.gpu->start_cublas()));
      }
      return {};
    }();
  });
  const Status captured = capture_graphs(s);
  libraries.join();
  uploads.join();
  KTX_TRY(captured);
  KTX_TRY(started);
  KTX_TRY(uploaded);
  s.notes.insert(s.notes.end(), notes.begin(), notes.end());
  return {};
}

}  // namespace

Result<std::unique_ptr<GpuState>> start_gpus(const BackendSetup& setup, const BoundParts& parts,
                                             const HostArena& host) {
  auto state = std::make_unique<GpuState>(setup, parts, host);
  GpuState& s = *state;
  const Timer timer;
  KTX_TRY(open_devices(s));
  const double opened = timer.seconds();
  KTX_TRY(join_team(s));
  KTX_TRY(allocate_host(s));
  for (GpuDevice& device : s.devices) {
    KTX_TRY(device.named(allocate_device(s, device)));
  }
  KTX_TRY(place_boundaries(s));
  KTX_TRY(start_streams(s));
  KTX_TRY(start_guests(s));
  for (GpuDevice& device : s.devices) {
    KTX_TRY(bind_launches(s, device, s.program.launches));
  }
  KTX_TRY(place_logits(s));
  for (GpuDevice& device : s.devices) KTX_TRY(device.named(allocate_workspace(s, device)));
  for (const Part& part : s.parts.parts) {
    s.marks.push_back(part.awaited ? KTX_TRY(s.devices[part.device].gpu->new_mark()) : 0);
    if (part.kind != Part::Kind::Gpu && part.kind != Part::Kind::Peer) continue;
    for (uint32_t i = 0; i < part.step_count; ++i) s.steps.push_back(part.first_step + i);
  }
  const double bound = timer.seconds();
  KTX_TRY(upload_and_capture(s));
  s.notes.push_back(
      fmt::format("ready in {:.2f} s: {:.2f} s for the driver, {:.2f} s for memory "
                  "and steps, {:.2f} s for weights and graphs",
                  timer.seconds(), opened, bound - opened, timer.seconds() - bound));
  return state;
}

}  // namespace ktx::runtime
