#include "lib/runtime/cuda/cuda_gpu.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cuda/common/cuda_copy.h"
#include "kernels/cuda/common/this_gpu.h"
#include "kernels/cuda/marlin/cuda_retile.h"
#include "kernels/cuda/matmul/cublas.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "kernels/cuda/rows/cuda_sampling.h"
#include "lib/runtime/cuda/cuda_check.h"
#include "lib/runtime/cuda/cuda_steps.h"
#include "lib/runtime/cuda/nccl_link.h"
#include "lib/support/env.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

class CudaGraph final : public GpuGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t exec) : exec(exec) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec); }
  cudaGraphExec_t exec;
};

static_assert(kMostBestLogits == kernels::kCudaMostBest);
static_assert(sizeof(TokenLogit) == sizeof(kernels::CudaTokenLogit) &&
              offsetof(TokenLogit, id) == offsetof(kernels::CudaTokenLogit, id));

kernels::CudaBestLogitsArgs launcher_args(const GpuBestLogits& a) {
  kernels::CudaBestLogitsArgs args;
  args.logits = a.logits;
  args.logits_stride = a.stride;
  args.rows = a.rows;
  args.vocabulary = a.vocabulary;
  args.count = a.count;
  args.allowed = a.allowed;
  args.allowed_words = a.allowed_words;
  args.best = reinterpret_cast<kernels::CudaTokenLogit*>(a.best);
  args.log_sum = a.log_sum;
  args.workspace = a.workspace;
  return args;
}

}  // namespace

Result<std::unique_ptr<Gpu>> open_gpu(int number) {
  return CudaGpu::open(number);
}

Result<std::unique_ptr<Gpu>> CudaGpu::open(int number) {
  int count = 0;
  KTX_TRY(cuda_status(cudaGetDeviceCount(&count), "asking for GPUs"));
  if (number >= count) {
    return Error{fmt::format(
        "this machine shows {} GPU{} (cuda:0{}); see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or place the plan again for this machine: ktx-compile "
        "model.ktxplan -o model.ktxplan",
        count, count == 1 ? "" : "s", count > 1 ? fmt::format(" to cuda:{}", count - 1) : "")};
  }
  auto gpu = std::unique_ptr<CudaGpu>(new CudaGpu(number));
  cudaDeviceProp properties;
  KTX_TRY(cuda_status(cudaGetDeviceProperties(&properties, number), "asking the GPU"));
  KTX_TRY(cuda_status(cudaSetDevice(number), "taking the GPU"));
  // The host waits for a few microseconds at a time: awake.
  KTX_TRY(cuda_status(cudaSetDeviceFlags(cudaDeviceScheduleSpin), "taking the GPU"));
  size_t free = 0, total = 0;
  KTX_TRY(cuda_status(cudaMemGetInfo(&free, &total), "taking the GPU"));
  int clock_khz = 0, bus_bits = 0;
  cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, number);
  cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, number);
  const double bandwidth = 2.0 * clock_khz * 1e3 * bus_bits / 8 / 1e9;  // two transfers a clock
  gpu->facts_ = {properties.name, properties.major,       properties.minor, total, free,
                 bandwidth,       kernels::this_gpu_has()};
  KTX_TRY(cuda_status(cudaStreamCreateWithFlags(&gpu->stream_, cudaStreamNonBlocking),
                      "making a stream"));
  KTX_TRY(cuda_status(cudaStreamCreateWithFlags(&gpu->uploads_, cudaStreamNonBlocking),
                      "making a stream"));
  KTX_TRY(cuda_status(cudaEventCreateWithFlags(&gpu->peer_, cudaEventDisableTiming),
                      "making an event"));
  return std::unique_ptr<Gpu>(std::move(gpu));
}

CudaGpu::~CudaGpu() {
  use();
  for (cudaEvent_t event : marks_) cudaEventDestroy(event);
  for (cudaEvent_t event : stamps_) cudaEventDestroy(event);
  team_memory_ = {};
  team_counts_ = {};
  if (team_host_memory_) cudaFreeHost(team_host_memory_);
  if (team_.missing) cudaFreeHost(team_.missing);
  if (peer_) cudaEventDestroy(peer_);
  if (uploads_) cudaStreamDestroy(uploads_);
  if (stream_) cudaStreamDestroy(stream_);
}

Status CudaGpu::check_links() {
  KTX_TRY(open_nccl());
  return {};
}

Result<GpuLinkId> CudaGpu::new_link_id() {
  use();
  const Nccl* const nccl = KTX_TRY(open_nccl());
  NcclId id;
  const int made = nccl->get_unique_id(&id);
  if (made != Nccl::kSuccess) return nccl->error(made, "naming a link");
  GpuLinkId link;
  std::memcpy(link.bytes.data(), id.bytes, link.bytes.size());
  return link;
}

Result<std::unique_ptr<GpuLink>> CudaGpu::link(const GpuLinkId& id, bool sends,
                                               const std::function<bool()>& gives_up) {
  use();
  return make_nccl_link(id, sends, gives_up);
}

Result<GpuMemory> CudaGpu::allocate(uint64_t bytes, const char* what) {
  if (bytes == 0) return GpuMemory();
  use();
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, bytes);
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(code, fmt::format("{}: {} of GPU memory, of which {} is free", what,
                                        human_bytes(bytes), human_bytes(free_bytes())));
  }
  return GpuMemory(this, static_cast<std::byte*>(data), bytes);
}

void CudaGpu::free(std::byte* data) {
  use();
  cudaFree(data);
}

uint64_t CudaGpu::free_bytes() {
  use();
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

Result<std::byte*> CudaGpu::allocate_host(uint64_t bytes) {
  use();
  void* data = nullptr;
  const cudaError_t code = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (code != cudaSuccess) (void)cudaGetLastError();
  KTX_TRY(cuda_status(code, "taking host memory"));
  return static_cast<std::byte*>(data);
}

void CudaGpu::free_host(std::byte* data) {
  cudaFreeHost(data);
}

Status CudaGpu::pin(std::byte* data, uint64_t bytes) {
  use();
  const cudaError_t code = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
  if (code != cudaSuccess) (void)cudaGetLastError();
  return cuda_status(code, "pinning host memory");
}

Status CudaGpu::pin_read_only(const std::byte* data, uint64_t bytes) {
  use();
  const cudaError_t code = cudaHostRegister(const_cast<std::byte*>(data), bytes,
                                            cudaHostRegisterPortable | cudaHostRegisterReadOnly);
  if (code != cudaSuccess) (void)cudaGetLastError();
  return cuda_status(code, "pinning the mapped plan");
}

void CudaGpu::unpin(const std::byte* data) {
  cudaHostUnregister(const_cast<std::byte*>(data));
}

Status CudaGpu::upload(std::byte* to, const std::byte* from, uint64_t bytes) {
  use();
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_),
                     "copying to the GPU");
}

Status CudaGpu::upload_beside(std::byte* to, const std::byte* from, uint64_t bytes, GpuMark done) {
  use();
  KTX_TRY(cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, uploads_),
                      "copying to the GPU"));
  return cuda_status(cudaEventRecord(marks_[done], uploads_), "marking the queue");
}

Status CudaGpu::download(std::byte* to, const std::byte* from, uint64_t bytes) {
  use();
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                     "copying from the GPU");
}

Status CudaGpu::copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  use();
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
                     "copying on the GPU");
}

Status CudaGpu::copy_from(Gpu& other, std::byte* to, const std::byte* from, uint64_t bytes) {
  auto& sender = static_cast<CudaGpu&>(other);
  sender.use();
  KTX_TRY(cuda_status(cudaEventRecord(sender.peer_, sender.stream_), "copying between GPUs"));
  use();
  KTX_TRY(cuda_status(cudaStreamWaitEvent(stream_, sender.peer_, 0), "copying between GPUs"));
  KTX_TRY(cuda_status(cudaMemcpyPeerAsync(to, number_, from, sender.number_, bytes, stream_),
                      "copying between GPUs"));
  // The sender may write the value again behind the copy.
  KTX_TRY(cuda_status(cudaEventRecord(peer_, stream_), "copying between GPUs"));
  sender.use();
  return cuda_status(cudaStreamWaitEvent(sender.stream_, peer_, 0), "copying between GPUs");
}

Status CudaGpu::clear(std::byte* data, uint64_t bytes) {
  if (bytes == 0) return {};
  use();
  return cuda_status(cudaMemsetAsync(data, 0, bytes, stream_), "clearing GPU memory");
}

Status CudaGpu::add(float* to, const float* from, int64_t rows, int64_t width) {
  use();
  kernels::RowsArgs args;
  args.in[0] = {to, width};
  args.in[1] = {from, width};
  args.y = to;
  args.y_stride = args.width = width;
  args.token_end = rows;
  args.attrs = NoAttrs{};
  return kernels::find_cuda_rows(StepOp::Add)(args, stream_);
}

Result<kernels::CudaTeamMemory*> CudaGpu::team_memory(bool by_host) {
  constexpr size_t kBytes = sizeof(kernels::CudaTeamMemory);
  use();
  if (by_host && team_host_memory_ == nullptr) {
    void* memory = nullptr;
    KTX_TRY(cuda_status(cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable | cudaHostAllocMapped),
                        "taking host memory for sums"));
    std::memset(memory, 0, kBytes);
    team_host_memory_ = static_cast<kernels::CudaTeamMemory*>(memory);
  }
  if (by_host) return team_host_memory_;
  if (team_memory_.size() == 0) {
    team_memory_ = KTX_TRY(allocate(kBytes, "flags of sums"));
    KTX_TRY(clear(team_memory_.data(), team_memory_.size()));
    KTX_TRY(finish());
  }
  return reinterpret_cast<kernels::CudaTeamMemory*>(team_memory_.data());
}

Result<bool> CudaGpu::reaches(Gpu& other) {
  const int number = static_cast<CudaGpu&>(other).number_;
  if (number == number_) return true;
  if (env("KTX_PEER_ACCESS") == "off") return false;
  int reached = 0;
  KTX_TRY(
      cuda_status(cudaDeviceCanAccessPeer(&reached, number_, number), "asking for peer access"));
  return reached != 0;
}

Result<bool> CudaGpu::join_team(std::span<Gpu* const> team, size_t rank, bool by_host) {
  if (team.size() > kernels::kMostTeam) return false;
  team_ = {.gpus = static_cast<int>(team.size()), .rank = static_cast<int>(rank)};
  team_.by_host = by_host;
  for (size_t r = 0; r < team.size(); ++r) {
    auto& other = static_cast<CudaGpu&>(*team[r]);
    team_numbers_.push_back(other.number_);
    team_.memory[r] = KTX_TRY(other.team_memory(by_host));
    if (by_host || other.number_ == number_) continue;
    use();
    const cudaError_t code = cudaDeviceEnablePeerAccess(other.number_, 0);
    (void)cudaGetLastError();
    if (code != cudaErrorPeerAccessAlreadyEnabled) {
      KTX_TRY(cuda_status(code, "getting access to another GPU's memory"));
    }
  }
  use();
  team_counts_ = KTX_TRY(allocate(sizeof(kernels::CudaTeamCounts), "numbers of sums"));
  KTX_TRY(clear(team_counts_.data(), team_counts_.size()));
  team_.counts = reinterpret_cast<kernels::CudaTeamCounts*>(team_counts_.data());
  void* missing = nullptr;
  KTX_TRY(cuda_status(cudaHostAlloc(&missing, sizeof(uint32_t), cudaHostAllocPortable),
                      "taking host memory"));
  team_.missing = static_cast<uint32_t*>(missing);
  *team_.missing = 0;
  return true;
}

Status CudaGpu::sum(const GpuSum& sum) {
  use();
  kernels::CudaAllReduceArgs args{.y = sum.y, .accumulate = sum.accumulate};
  for (size_t i = 0; i < sum.parts.size(); ++i) {
    args.parts[args.count] = sum.parts[i];
    args.ranks[args.count++] = static_cast<int>(sum.ranks[i]);
  }
  args.elems = sum.rows * sum.width;
  return kernels::launch_all_reduce(args, team_, stream_);
}

Status CudaGpu::copy_small(std::span<const GpuCopy> copies) {
  use();
  kernels::CudaCopies args;
  for (const GpuCopy& copy : copies) {
    args.copies[args.count++] = {copy.to, copy.from, static_cast<int64_t>(copy.bytes)};
  }
  return kernels::launch_copies(args, stream_);
}

Result<GpuMark> CudaGpu::new_mark() {
  use();
  cudaEvent_t event = nullptr;
  KTX_TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
  marks_.push_back(event);
  return static_cast<GpuMark>(marks_.size()) - 1;
}

Status CudaGpu::set(GpuMark mark) {
  use();
  return cuda_status(cudaEventRecord(marks_[mark], stream_), "marking the queue");
}

Status CudaGpu::wait(GpuMark mark) {
  return cuda_status(cudaEventSynchronize(marks_[mark]), "waiting for the GPU");
}

Result<bool> CudaGpu::passed(GpuMark mark) {
  const cudaError_t state = cudaEventQuery(marks_[mark]);
  if (state == cudaErrorNotReady) return false;
  KTX_TRY(cuda_status(state, "looking at the GPU"));
  return true;
}

Status CudaGpu::queue_after(GpuMark mark) {
  use();
  return cuda_status(cudaStreamWaitEvent(stream_, marks_[mark], 0), "waiting for an upload");
}

Status CudaGpu::uploads_after(GpuMark mark) {
  use();
  return cuda_status(cudaStreamWaitEvent(uploads_, marks_[mark], 0), "waiting for the queue");
}

Status CudaGpu::retile(const GpuRetile& w) {
  use();
  return kernels::launch_retile({w.dtype, w.from, w.cols, w.strips, w.panels, w.tiles}, stream_);
}

Status CudaGpu::finish() {
  use();
  KTX_TRY(cuda_status(cudaStreamSynchronize(stream_), "waiting for the GPU"));
  if (team_.missing == nullptr || *team_.missing == 0) return {};
  const uint32_t rank = *team_.missing - 1;
  const int other = rank < team_numbers_.size() ? team_numbers_[rank] : -1;
  return Error{
      fmt::format("cuda:{}, one of {} GPUs that compute together, did not come to a sum "
                  "within 20 s",
                  other, team_.gpus)};
}

Status CudaGpu::stamp(int64_t number, GpuLane lane) {
  use();
  while (static_cast<int64_t>(stamps_.size()) <= number) {
    cudaEvent_t event = nullptr;
    KTX_TRY(cuda_status(cudaEventCreate(&event), "making an event"));
    stamps_.push_back(event);
  }
  return cuda_status(cudaEventRecord(stamps_[number], lane == GpuLane::Queue ? stream_ : uploads_),
                     "noting a time");
}

Result<double> CudaGpu::stamp_seconds(int64_t number) {
  use();
  float milliseconds = 0;
  KTX_TRY(cuda_status(cudaEventElapsedTime(&milliseconds, stamps_[0], stamps_[number]),
                      "reading a time"));
  return milliseconds * 1e-3;
}

Status CudaGpu::start_cublas() {
  use();
  return kernels::start_cublas();
}

Status CudaGpu::begin_capture() {
  use();
  return cuda_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                     "capturing a graph");
}

Result<std::unique_ptr<GpuGraph>> CudaGpu::end_capture() {
  use();
  cudaGraph_t graph = nullptr;
  KTX_TRY(cuda_status(cudaStreamEndCapture(stream_, &graph), "capturing a graph"));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  KTX_TRY(cuda_status(code, "making a graph"));
  auto made = std::make_unique<CudaGraph>(exec);
  KTX_TRY(cuda_status(cudaGraphUpload(exec, stream_), "making a graph"));
  return std::unique_ptr<GpuGraph>(std::move(made));
}

Status CudaGpu::launch(GpuGraph& graph) {
  use();
  return cuda_status(cudaGraphLaunch(static_cast<CudaGraph&>(graph).exec, stream_),
                     "launching a graph");
}

Result<std::unique_ptr<GpuStep>> CudaGpu::make_launch(const GpuBindContext& context,
                                                      std::span<GpuStep* const>) {
  use();
  return context.launch.op ? make_cuda_fused(*this, context) : make_cuda_step(*this, context);
}

Status CudaGpu::find_best(const GpuBestLogits& args) {
  use();
  return kernels::launch_best_logits(launcher_args(args), stream_);
}

int64_t CudaGpu::find_best_bytes(const GpuBestLogits& args) const {
  return kernels::cuda_best_logits_workspace(launcher_args(args));
}

}  // namespace ktx::runtime
