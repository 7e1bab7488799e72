// Takes from a worker, once it has its device and its memory, everything that a kernel's wrapper does not need: network,
// new processes, other processes, writing files, reading a user's files, privileges. What calls for it later gets an error.
//
// seccomp and Landlock rather than namespaces: a process can put itself under them at any time, without privileges, while
// a CUDA context cannot be made inside most sandboxes, nor a namespace entered once there are threads.
#pragma once
#include <algorithm>
#include <string>
#ifdef __linux__
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>
#endif

namespace mskb {

#ifdef __linux__

namespace confining {

constexpr rlim_t kMostOutput = rlim_t{256} << 20; // bytes that a worker may print

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// Calls that are refused. Threads of the process itself remain possible: CUDA and the CPU device start some.
inline const std::vector<long>& refused() {
    static const std::vector<long> calls = {
#ifdef SYS_fork
        SYS_fork,
        SYS_vfork,
#endif
        SYS_execve,
        SYS_execveat,
        SYS_ptrace,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_kill,
        SYS_tkill,
        SYS_rt_sigqueueinfo,
        SYS_rt_tgsigqueueinfo,
        SYS_setsid,
        SYS_setpgid,
        SYS_sched_setaffinity, // all of them are timed on one core
        SYS_sched_setscheduler,
        SYS_sched_setparam,
        SYS_sched_setattr,
        SYS_setpriority,
        SYS_ioprio_set,
        SYS_flock,  // the lock of the GPU is inherited by all that use it: who lets go of it does so for all
        SYS_shmget, // memory that outlives its process and is open to others
        SYS_shmat,
        SYS_memfd_create, // what is written there is no memory of the process, which the judge limits
        447,              // memfd_secret
        SYS_semget,
        SYS_msgget,
        SYS_mq_open,
        SYS_socket,
        SYS_socketpair,
        SYS_connect,
        SYS_bind,
        SYS_listen,
        SYS_accept,
        SYS_accept4,
        SYS_mount,
        SYS_umount2,
        SYS_chroot,
        SYS_unshare,
        SYS_setns,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_userfaultfd,
        SYS_open_by_handle_at,
        SYS_personality,
        424, // pidfd_send_signal, and by numbers that all architectures share:
        425, // io_uring_setup
        434, // pidfd_open
        438, // pidfd_getfd
        // What changes a file by its name without opening it to write, which Landlock does not look at. ftruncate is for
        // memory that is shared with the judge.
        SYS_truncate,
        SYS_ftruncate,
        SYS_fchmod,
        SYS_fchmodat,
        452, // fchmodat2
        SYS_fchown,
        SYS_fchownat,
        SYS_utimensat,
        SYS_setxattr,
        SYS_lsetxattr,
        SYS_fsetxattr,
        SYS_removexattr,
        SYS_lremovexattr,
        SYS_fremovexattr,
        463, // setxattrat
        466, // removexattrat
#ifdef SYS_chmod
        SYS_chmod,
        SYS_chown,
        SYS_lchown,
        SYS_utime,
        SYS_utimes,
        SYS_futimesat,
        SYS_creat,
#endif
    };
    return calls;
}

// Puts every thread of the process under the filter.
inline bool filter_calls() {
    constexpr unsigned kNumber = offsetof(seccomp_data, nr), kArguments = offsetof(seccomp_data, args);
    auto statement = [](unsigned code, unsigned value) {
        return sock_filter{static_cast<uint16_t>(code), 0, 0, value};
    };
    auto when = [](unsigned condition, unsigned value, unsigned char yes, unsigned char no) {
        return sock_filter{static_cast<uint16_t>(BPF_JMP | condition | BPF_K), yes, no, value};
    };
    constexpr unsigned kLoad = BPF_LD | BPF_W | BPF_ABS, kReturn = BPF_RET | BPF_K;
    constexpr unsigned kDenied = SECCOMP_RET_ERRNO | EPERM, kUnknown = SECCOMP_RET_ERRNO | ENOSYS;
    std::vector<sock_filter> program = {
        statement(kLoad, offsetof(seccomp_data, arch)),
        when(BPF_JEQ, kArchitecture, 1, 0),
        statement(kReturn, SECCOMP_RET_KILL_PROCESS),
        statement(kLoad, kNumber),
        when(BPF_JGE, 0x40000000u, 0, 1), // another numbering of the same calls
        statement(kReturn, kDenied),
    };
    for (long call : refused()) {
        program.push_back(when(BPF_JEQ, static_cast<unsigned>(call), 0, 1));
        program.push_back(statement(kReturn, kDenied));
    }
    // clone3 and openat2 hide their flags behind a pointer; the C library falls back to clone and openat.
    for (unsigned call : {435u, 437u}) {
        program.push_back(when(BPF_JEQ, call, 0, 1));
        program.push_back(statement(kReturn, kUnknown));
    }
    // `call` goes through where `condition` holds for the lower half of one of its arguments, or where it does not.
    auto only = [&](long call, unsigned argument, unsigned condition, unsigned value, bool holds) {
        program.push_back(when(BPF_JEQ, static_cast<unsigned>(call), 0, 4));
        program.push_back(statement(kLoad, kArguments + argument * sizeof(uint64_t)));
        program.push_back(when(condition, value, holds ? 1 : 0, holds ? 0 : 1));
        program.push_back(statement(kReturn, kDenied));
        program.push_back(statement(kReturn, SECCOMP_RET_ALLOW));
    };
    only(SYS_clone, 0, BPF_JSET, CLONE_THREAD, true);
    only(SYS_tgkill, 0, BPF_JEQ, static_cast<unsigned>(getpid()), true); // abort() is a signal to a thread
    for (long call : {SYS_prlimit64, SYS_migrate_pages, SYS_move_pages})
        only(call, 0, BPF_JEQ, 0, true); // of itself: a limit on another process's time ends that
    only(SYS_openat, 2, BPF_JSET, O_TRUNC, false);
#ifdef SYS_open
    only(SYS_open, 1, BPF_JSET, O_TRUNC, false);
#endif
    // Whoever owns a descriptor gets a signal, one that can be chosen, when there is something to read.
    auto never = [&](long call, std::initializer_list<unsigned> values) {
        auto behind = static_cast<unsigned char>(2 * values.size() + 2);
        program.push_back(when(BPF_JEQ, static_cast<unsigned>(call), 0, behind));
        program.push_back(statement(kLoad, kArguments + sizeof(uint64_t)));
        for (unsigned value : values) {
            program.push_back(when(BPF_JEQ, value, 0, 1));
            program.push_back(statement(kReturn, kDenied));
        }
        program.push_back(statement(kReturn, SECCOMP_RET_ALLOW));
    };
    never(SYS_fcntl, {F_SETOWN, F_SETOWN_EX});
    never(SYS_ioctl, {FIOSETOWN, SIOCSPGRP});
    program.push_back(statement(kReturn, SECCOMP_RET_ALLOW));
    sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole) == 0;
}

// Landlock's interface, whose header is newer than many systems.
struct Rules {
    uint64_t handled;
};
struct [[gnu::packed]] Beneath {
    uint64_t allowed;
    int32_t parent;
};
constexpr long kCreate = 444, kAddRule = 445, kRestrict = 446;
constexpr uint64_t kExecute = 1, kWriteFile = 2, kReadFile = 4, kReadFolder = 8;
constexpr uint64_t kHandled =
    (1 << 13) - 1; // all rights of its first version; refused() has what it does not know

inline void allow(int rules, const std::string& path, uint64_t access) {
    int place = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (place < 0)
        return; // what is not there needs no rule
    Beneath rule{access, place};
    syscall(kAddRule, rules, 1, &rule, 0);
    close(place);
}

// Leaves what libraries of the system read, devices of the GPU, and folders that are named. Nothing can be written.
inline bool limit_files(const std::vector<std::string>& readable) {
    Rules wanted{kHandled};
    int rules = static_cast<int>(syscall(kCreate, &wanted, sizeof wanted, 0));
    if (rules < 0)
        return false;
    for (const char* folder :
         {"/usr", "/lib", "/lib64", "/opt", "/etc/nvidia", "/proc/self", "/proc/driver", "/sys"})
        allow(rules, folder, kExecute | kReadFile | kReadFolder);
    for (const std::string& folder : readable)
        allow(rules, folder, kExecute | kReadFile | kReadFolder);
    for (const char* file :
         {"/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/dev/urandom", "/dev/zero"})
        allow(rules, file, kReadFile);
    allow(rules, "/dev/null", kReadFile | kWriteFile);
    if (DIR* devices = opendir("/dev")) {
        while (const dirent* entry = readdir(devices))
            if (std::strncmp(entry->d_name, "nvidia", 6) == 0)
                allow(rules, std::string("/dev/") + entry->d_name,
                      kReadFile | kWriteFile | (entry->d_type == DT_DIR ? kReadFolder : 0));
        closedir(devices);
    }
    char executable[4096]; // read for the addresses in reports
    ssize_t length = readlink("/proc/self/exe", executable, sizeof executable);
    allow(rules, std::string(executable, std::max<ssize_t>(length, 0)), kReadFile);
    bool done = syscall(kRestrict, rules, 0) == 0;
    close(rules);
    return done;
}

inline void drop_privileges() {
    for (int capability = 0; capability < 64; ++capability)
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    syscall(SYS_capset, &header, none);
}

} // namespace confining

// Says what holds from now on, for the report. Files in the `readable` folders can be read too.
inline std::string confine(const std::vector<std::string>& readable = {}) {
    rlimit no_core{0, 0}, output{confining::kMostOutput, confining::kMostOutput};
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &output);
    confining::drop_privileges();
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    bool files = confining::limit_files(readable), calls = confining::filter_calls();
    return std::string(calls ? "no network, no other processes"
                             : "network and processes are open (no seccomp)") +
           (files ? ", system files read-only, no others" : ", files are open (no Landlock)");
}

#else

inline std::string confine(const std::vector<std::string>& = {}) {
    return "not confined: this system has neither seccomp nor Landlock";
}

#endif

} // namespace mskb
