#include "serve/http_server.h"

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

namespace tessera::serve {
namespace {

constexpr int64_t kSpareFiles = 64;  // descriptors that are no connections

}  // namespace

int64_t connections_that_fit(int64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wanted + kSpareFiles));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return std::max<int64_t>(16, std::min(wanted, static_cast<int64_t>(limit.rlim_cur) - kSpareFiles));
}

void refuse_new_handshakes(int listener) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),           // the flags of the TCP header
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x12),        // SYN and ACK
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 0, 1),  // SYN alone
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
  };
  const sock_fprog program{std::size(code), code};
  ::setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

}  // namespace tessera::serve
