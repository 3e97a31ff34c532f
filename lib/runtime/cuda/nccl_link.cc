#include "lib/runtime/cuda/nccl_link.h"

#include <cstring>
#include <thread>

#include "lib/runtime/cuda/cuda_check.h"

namespace ktx::runtime {
namespace {

class NcclLink final : public GpuLink {
 public:
  NcclLink(const Nccl& nccl, int gpu) : nccl_(nccl), gpu_(gpu) {}
  ~NcclLink() override {
    cudaSetDevice(gpu_);
    if (comm_) (void)nccl_.abort(comm_);
    if (stream_) cudaStreamDestroy(stream_);
  }

  Status open(const GpuLinkId& id, bool sends, const std::function<bool()>& gives_up) {
    KTX_TRY(
        cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"));
    NcclId own;
    std::memcpy(own.bytes, id.bytes.data(), sizeof(own.bytes));
    NcclConfig config;
    const int begun = nccl_.comm_init(&comm_, 2, own, sends ? 0 : 1, &config);
    return await(begun, "making a link", gives_up);
  }

  Status send(const std::byte* from, uint64_t bytes) override {
    cudaSetDevice(gpu_);
    return await(nccl_.send(from, bytes, Nccl::kBytes, 1, comm_, stream_), "sending", {});
  }
  Status receive(std::byte* to, uint64_t bytes) override {
    cudaSetDevice(gpu_);
    return await(nccl_.receive(to, bytes, Nccl::kBytes, 0, comm_, stream_), "receiving", {});
  }

  Result<bool> done() override {
    int state = Nccl::kSuccess;
    const int asked = nccl_.async_error(comm_, &state);
    if (asked != Nccl::kSuccess) return nccl_.error(asked, "asking for a link");
    if (state == Nccl::kInProgress) return false;
    if (state != Nccl::kSuccess) return nccl_.error(state, "using a link");
    const cudaError_t over = cudaStreamQuery(stream_);
    if (over == cudaErrorNotReady) return false;
    KTX_TRY(cuda_status(over, "using a link"));
    return true;
  }

 private:
  // A call that has begun, until NCCL has done its part of it on the host.
  Status await(int begun, const char* what, const std::function<bool()>& gives_up) {
    int state = begun;
    while (state == Nccl::kInProgress) {
      if (gives_up && gives_up()) {
        return Error{std::string(what) + ": the other GPU's process does not answer"};
      }
      std::this_thread::yield();
      const int asked = nccl_.async_error(comm_, &state);
      if (asked != Nccl::kSuccess) return nccl_.error(asked, what);
    }
    return state == Nccl::kSuccess ? Status{} : Status{nccl_.error(state, what)};
  }

  const Nccl& nccl_;
  const int gpu_;
  NcclComm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<GpuLink>> make_nccl_link(const GpuLinkId& id, bool sends,
                                                const std::function<bool()>& gives_up) {
  const Nccl* const nccl = KTX_TRY(open_nccl());
  int gpu = 0;
  KTX_TRY(cuda_status(cudaGetDevice(&gpu), "making a link"));
  auto link = std::make_unique<NcclLink>(*nccl, gpu);
  KTX_TRY(link->open(id, sends, gives_up));
  return std::unique_ptr<GpuLink>(std::move(link));
}

}  // namespace ktx::runtime
