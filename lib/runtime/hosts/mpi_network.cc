// MPI as the network of a run: the one file that knows of it. It is compiled into the library
// ktx-mpi.so with the headers of the MPI at hand (Open MPI, MPICH), which ktx-run opens for plans
// with hosts (open_mpi.cc).
//
// MPI is entered by one thread at a time. Messages are sent and received without waiting, so a host
// that is gone never holds another one up here. Errors are returned, not fatal.
#include <mpi.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lib/runtime/hosts/mpi_start_watch.h"
#include "lib/runtime/hosts/network.h"
#include "lib/runtime/hosts/open_mpi.h"

namespace ktx::runtime {
namespace {

class MpiNetwork final : public Network {
 public:
  static Result<std::unique_ptr<MpiNetwork>> open(const RanksMissing& missing) {
    int given = MPI_THREAD_SINGLE, started = 0;
    MPI_Initialized(&started);
    const MpiStartWatch watch(missing);
    if (started == 0 && MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given) != 0) {
      return Error{"MPI does not start"};
    }
    if (started == 0 && given < MPI_THREAD_SERIALIZED) {
      return Error{
          "this MPI was built without threads (MPI_THREAD_SERIALIZED); install another one"};
    }
    std::unique_ptr<MpiNetwork> network(new MpiNetwork);
    // A communicator of its own keeps other libraries' messages apart.
    if (MPI_Comm_dup(MPI_COMM_WORLD, &network->ranks_comm_) != MPI_SUCCESS) {
      return Error{"MPI gives no communicator"};
    }
    MPI_Comm_set_errhandler(network->ranks_comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(network->ranks_comm_, &network->rank_);
    MPI_Comm_size(network->ranks_comm_, &network->ranks_);
    return network;
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  Status send(int to, Channel channel, MessageBytes message) override {
    if (message.size() > kMostMessageBytes) {
      return Error{"a message of " + std::to_string(message.size()) +
                   " bytes is too long; write a smaller --chunk"};
    }
    const std::lock_guard lock(mutex_);
    Sent& sent = sent_.emplace_back();
    sent.message = std::move(message);
    const int error =
        MPI_Isend(sent.message.data(), static_cast<int>(sent.message.size()), MPI_BYTE, to,
                  static_cast<int>(channel), ranks_comm_, &sent.request);
    if (error == MPI_SUCCESS) return {};
    sent_.pop_back();
    return failed("send to rank " + std::to_string(to), error);
  }

  Result<bool> receive(Channel channel, int& from, MessageBytes& message) override {
    const std::lock_guard lock(mutex_);
    std::deque<Received>& received = received_[static_cast<int>(channel)];
    KTX_TRY(begin_receives(channel, received));
    for (size_t i = 0; i < received.size(); ++i) {
      // Those of a sender in their order.
      bool earlier = false;
      for (size_t before = 0; before < i; ++before) {
        earlier = earlier || received[before].from == received[i].from;
      }
      int done = 0;
      if (earlier) continue;
      const int error = MPI_Test(&received[i].request, &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS) {
        return failed("receive from rank " + std::to_string(received[i].from), error);
      }
      if (done == 0) continue;
      from = received[i].from;
      message = std::move(received[i].message);
      received.erase(received.begin() + static_cast<ptrdiff_t>(i));
      return true;
    }
    return false;
  }

  Result<bool> progress() override {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < sent_.size();) {
      int done = 0;
      const int error = MPI_Test(&sent_[i].request, &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS) return failed("send", error);
      if (done != 0) {
        sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return !sent_.empty();
  }

  void close(bool in_order) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (in_order) {
      MPI_Finalize();
    } else {
      // What is on its way to or from a host that is gone would never end.
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }

 private:
  MpiNetwork() = default;
  struct Sent {
    MessageBytes message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Received {
    int from = 0;
    MessageBytes message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Status begin_receives(Channel channel, std::deque<Received>& received) {
    for (;;) {
      int there = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      int error = MPI_Improbe(MPI_ANY_SOURCE, static_cast<int>(channel), ranks_comm_, &there,
                              &message, &status);
      if (error != MPI_SUCCESS) return failed("look for messages", error);
      if (there == 0) return {};
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      Received& own = received.emplace_back();
      own.from = status.MPI_SOURCE;
      own.message.resize(static_cast<size_t>(bytes < 0 ? 0 : bytes));
      error = MPI_Imrecv(own.message.data(), bytes, MPI_BYTE, &message, &own.request);
      if (error != MPI_SUCCESS) {
        return failed("receive from rank " + std::to_string(own.from), error);
      }
    }
  }

  static Error failed(const std::string& what, int error) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(error, text, &length);
    return Error{"MPI cannot " + what + ": " + std::string(text, static_cast<size_t>(length))};
  }

  std::mutex mutex_;
  MPI_Comm ranks_comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  bool closed_ = false;
  std::deque<Sent> sent_;             // in a deque: the requests' bytes stay where they are
  std::deque<Received> received_[2];  // by channel
};

}  // namespace
}  // namespace ktx::runtime

extern "C" {

const char* ktx_mpi_build() {
  return KTX_VERSION;
}

ktx::runtime::Network* ktx_mpi_open(const ktx::runtime::RanksMissing* missing, std::string* error) {
  auto network = ktx::runtime::MpiNetwork::open(*missing);
  if (network) return network.take().release();
  *error = network.error().message;
  return nullptr;
}
}
