// What a place in shared memory is called in the kernel, read from the program's own table of symbols where a message wants it.
#include "executor.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace executor {

namespace {

// The program's file.
class Image {
  public:
    Image() {
        int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        struct stat about{};
        if (file < 0)
            return;
        if (fstat(file, &about) == 0 && about.st_size > static_cast<off_t>(sizeof(Elf64_Ehdr))) {
            void* memory = mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_PRIVATE, file, 0);
            if (memory != MAP_FAILED) {
                begin_ = static_cast<const char*>(memory);
                bytes_ = static_cast<size_t>(about.st_size);
            }
        }
        close(file);
    }
    ~Image() {
        if (begin_)
            munmap(const_cast<char*>(begin_), bytes_);
    }
    Image(const Image&) = delete;
    Image& operator=(const Image&) = delete;

    // The symbol of a kind that holds the value, and where in it that is; empty where there is none.
    std::string symbol_at(unsigned char kind, uint64_t value, uint64_t* offset) const {
        if (!begin_ || std::memcmp(begin_, ELFMAG, SELFMAG) != 0 || begin_[EI_CLASS] != ELFCLASS64)
            return "";
        const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(begin_);
        const auto* sections = reinterpret_cast<const Elf64_Shdr*>(begin_ + header.e_shoff);
        for (unsigned i = 0; header.e_shoff && i < header.e_shnum; ++i) {
            if (sections[i].sh_type != SHT_SYMTAB)
                continue;
            const auto* symbols = reinterpret_cast<const Elf64_Sym*>(begin_ + sections[i].sh_offset);
            const char* names = begin_ + sections[sections[i].sh_link].sh_offset;
            for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; ++j)
                if (ELF64_ST_TYPE(symbols[j].st_info) == kind &&
                    value - symbols[j].st_value < symbols[j].st_size) {
                    *offset = value - symbols[j].st_value;
                    return names + symbols[j].st_name;
                }
        }
        return "";
    }

  private:
    const char* begin_ = nullptr;
    size_t bytes_ = 0;
};

// The variable in a mangled name: _ZZ <function> E <length> <name>, or _ZL <length> <name>, with a number behind where a
// function has several of one name; or as it is.
std::string plain(std::string name) {
    if (size_t at = name.rfind("_cm_key"); at != std::string::npos) // of an exact one; the length counts it
        name.resize(at);
    for (size_t at = name.size(); at-- > 1;)
        if (std::isdigit(static_cast<unsigned char>(name[at])) &&
            (name[at - 1] == 'E' || name[at - 1] == 'L')) {
            size_t begin = at;
            while (begin < name.size() && std::isdigit(static_cast<unsigned char>(name[begin])))
                ++begin;
            size_t length = std::strtoul(name.c_str() + at, nullptr, 10);
            if (length && begin < name.size())
                return name.substr(begin, length);
        }
    return name.compare(0, 2, "_Z") == 0 ? "" : name;
}

int add_base(dl_phdr_info* info, size_t, void* base) {
    *static_cast<uintptr_t*>(base) = info->dlpi_addr;
    return 1; // the first entry is the program itself
}

} // namespace

void name_of_shared(const void* place, char* text, size_t bytes) {
    const Worker& self = owner_of(place);
    const char* byte = static_cast<const char*>(place);
    if (long long offset = offset_in_dynamic(self, place); offset >= 0) {
        std::snprintf(text, bytes, "at byte %lld of dynamic shared memory", offset);
        return;
    }
    Image image;
    uint64_t offset = reinterpret_cast<uintptr_t>(place) - self.variables, unused = 0;
    std::string name;
    if (offset < self.variable_bytes)
        name = image.symbol_at(STT_TLS, offset, &offset);
    for (const auto& shared : self.exact_shared)
        if (byte >= shared.memory && byte < static_cast<char*>(shared.memory) + shared.bytes) {
            uintptr_t base = 0;
            dl_iterate_phdr(&add_base, &base);
            offset = static_cast<uint64_t>(byte - static_cast<char*>(shared.memory));
            name = image.symbol_at(STT_OBJECT, reinterpret_cast<uintptr_t>(shared.key) - base, &unused);
        }
    name = plain(name);
    if (name.empty())
        std::snprintf(text, bytes, "at shared address 0x%x",
                      cudamaster_cpu_shared_address(place) & 0xffffffu);
    else if (!offset)
        std::snprintf(text, bytes, "%.60s", name.c_str());
    else
        std::snprintf(text, bytes, "at byte %llu of %.60s", static_cast<unsigned long long>(offset),
                      name.c_str());
}

} // namespace executor
