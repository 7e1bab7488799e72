// A crash inside a kernel: says where, on stderr, and ends the process with its own exit code.
#include "executor.h"
#include "mismatch.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

// Our handler names kernel and thread. Leaks are the system's to clean up: fibres are never unwound.
extern "C" const char* __asan_default_options() {
    return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:detect_leaks=0:"
           "detect_stack_use_after_return=0:use_sigaltstack=0:allocator_may_return_null=1:exitcode=70";
}
extern "C" void __asan_on_error() {
    if (executor::worker && executor::worker->running)
        executor::print_where(executor::worker->job->launch->kernel,
                              "AddressSanitizer found an error, see below");
    else if (executor::is_device_memory(__asan_get_report_address()))
        executor::print_host_access(__asan_get_report_address());
}
#endif

__thread int cudamaster_cpu_ptx_line;

namespace executor {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};

void write_line(const char* text, int length) {
    ssize_t written = write(STDERR_FILENO, text, static_cast<size_t>(length));
    (void)written;
}

// Where the processor was.
const void* place(const void* context) {
    const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(machine.pc);
#else
    return nullptr;
#endif
}

// What the host crashed on, in words: nobody else sees it, for no debugger may look into a worker.
void print_crash(int signal_number, const siginfo_t* info, const void* context) {
    auto at = static_cast<const char*>(place(context));
    Dl_info found{};
    if (dladdr(at, &found) != 0)
        at -= reinterpret_cast<uintptr_t>(found.dli_fbase);
    char line[512];
    int length = std::snprintf(
        line, sizeof line, "host code crashed: signal %d on address %p, %s, at %p in %.160s, %.200s\n",
        signal_number, info->si_addr, info->si_code > 0 ? "a fault" : "sent by a process",
        static_cast<const void*>(at), found.dli_fname ? found.dli_fname : "?",
        found.dli_sname ? found.dli_sname : "?");
    write_line(line, length < static_cast<int>(sizeof line) ? length : static_cast<int>(sizeof line) - 1);
}

void handle(int signal_number, siginfo_t* info, void* context) {
    Worker* self = worker;
    if (self && signal_number == SIGSEGV && open_on_touch(info->si_addr))
        return;
    if (!self || !self->running) {
        if (!self && signal_number == SIGSEGV && is_device_memory(info->si_addr)) {
            print_host_access(info->si_addr);
            _exit(kFaultExitCode);
        }
        // The host's own crash: let it be one.
        print_crash(signal_number, info, context);
        std::signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    char what[320];
    switch (signal_number) {
    case SIGFPE:
        std::snprintf(what, sizeof what, "integer division by zero");
        break;
    case SIGILL:
    case SIGTRAP:
        std::snprintf(what, sizeof what, "__trap");
        break;
    case SIGABRT:
        std::snprintf(what, sizeof what, "assertion failed or abort called");
        break;
    default:
        if (in_stack_guard(*self, info->si_addr)) {
            std::snprintf(what, sizeof what, "stack overflow: more than %zu KB of local memory",
                          kStackBytes >> 10);
        } else {
            char* base = self->shared_arena;
            char* address = static_cast<char*>(info->si_addr);
            char nearby[200];
            if (base && address >= base && address < base + (256 << 10) + kGuardBytes)
                std::snprintf(what, sizeof what, "access past the end of dynamic shared memory");
            else if (describe_address(info->si_addr, nearby, sizeof nearby))
                std::snprintf(what, sizeof what, "illegal memory access at %p, %s", info->si_addr, nearby);
            else
                std::snprintf(what, sizeof what, "illegal memory access at %p", info->si_addr);
        }
    }
    print_where(self->job->launch->kernel, what);
    _exit(kFaultExitCode);
}

} // namespace

void print_where(const char* kernel, const char* what) {
    char line[768], statement[32] = "";
    if (cudamaster_cpu_ptx_line > 0)
        std::snprintf(statement, sizeof statement, ", line %d", cudamaster_cpu_ptx_line);
    int length = std::snprintf(
        line, sizeof line, "cuda device fault: kernel %s, block (%u,%u,%u), thread (%u,%u,%u)%s: %s\n",
        kernel, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, statement, what);
    write_line(line, length < static_cast<int>(sizeof line) ? length : static_cast<int>(sizeof line) - 1);
}

void print_host_access(const void* address) {
    char line[200];
    write_line(line, std::snprintf(line, sizeof line,
                                   "cuda device fault: host code accessed device memory at %p; "
                                   "cudaMemcpy is the way to it\n",
                                   address));
}

#if defined(__SANITIZE_ADDRESS__)
void print_misaligned(const void* address, const char* type, unsigned long alignment, const char* file,
                      unsigned line) {
    const char* slash = std::strrchr(file, '/');
    char what[400];
    std::snprintf(what, sizeof what,
                  "misaligned address %p for type %.120s, which needs %lu bytes of alignment, at %.120s:%u",
                  address, type, alignment, slash ? slash + 1 : file, line);
    print_where(worker->job->launch->kernel, what);
}
#endif

void install_alternate_stack() {
    constexpr size_t kBytes = 64 << 10;
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = kBytes;
    if (memory != MAP_FAILED)
        sigaltstack(&stack, nullptr);
}

void install_fault_handlers() {
    static const bool installed = [] {
        struct sigaction action{};
        action.sa_sigaction = &handle;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int number : kSignals)
            sigaction(number, &action, nullptr);
        return true;
    }();
    (void)installed;
}

} // namespace executor

#if defined(__SANITIZE_ADDRESS__)
// What -fsanitize=alignment calls. The host's processor allows what a GPU does not.
extern "C" void __ubsan_handle_type_mismatch_v1(CudamasterCpuMismatch* mismatch, void* address) {
    if (!executor::worker || !executor::worker->running)
        return;
    executor::print_misaligned(address, mismatch->type->name, 1ul << mismatch->alignment_bits, mismatch->file,
                               mismatch->line);
    _exit(executor::kFaultExitCode);
}
#endif

// What device code prints goes to stderr, for stdout is the host program's.
int cudamaster_cpu_printf(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = std::vfprintf(executor::worker ? stderr : stdout, format, arguments);
    va_end(arguments);
    return count;
}
