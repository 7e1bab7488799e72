// Leaves the judge and its workers the one GPU that they use, on a machine of several.
//
// A process that makes a context opens every GPU whose device node it finds, whatever CUDA_VISIBLE_DEVICES says, and the
// driver lets one process of the machine do that at a time: on four H200s, on each of which five processes started at
// once, they took 6.5 s, and 4.6 s where each found one node. A kernel's wrapper cannot reach another GPU then, either.
#pragma once
#include <string>
#ifdef __linux__
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace mskb {

#ifdef __linux__

namespace own_gpu {

// Whether a name in /dev is that of a GPU: nvidia0, not nvidiactl.
inline bool is_gpu(const std::string& name) {
    return name.size() > 6 && name.rfind("nvidia", 0) == 0 &&
           name.find_first_not_of("0123456789", 6) == std::string::npos;
}

// Makes in the folder `made` what /dev has at `path`: a link, or a place that shows the same.
inline bool copied(const std::string& path, const std::string& made) {
    struct stat found{};
    if (lstat(path.c_str(), &found) != 0)
        return errno == ENOENT; // gone by now
    if (S_ISLNK(found.st_mode)) {
        char target[4096];
        ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
        return length >= 0 && symlink(std::string(target, length).c_str(), made.c_str()) == 0;
    }
    if (S_ISDIR(found.st_mode)) {
        if (mkdir(made.c_str(), 0755) != 0)
            return false;
    } else {
        int file = open(made.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (file < 0)
            return false;
        close(file);
    }
    return mount(path.c_str(), made.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

inline bool fill(const std::string& made, const std::string& node) {
    DIR* devices = opendir("/dev");
    bool ok = devices != nullptr;
    for (const dirent* entry; ok && (entry = readdir(devices)) != nullptr;) {
        std::string name = entry->d_name, path = "/dev/" + name;
        if (name != "." && name != ".." && (path == node || !is_gpu(name)))
            ok = copied(path, made + "/" + name);
    }
    if (devices != nullptr)
        closedir(devices);
    return ok;
}

} // namespace own_gpu

// Puts the process into a mount namespace in whose /dev of all /dev/nvidiaN there is the `node` alone, and nothing can be
// made, or the driver's library would make the others. Called before there are threads. Where it may not be done, all
// stays as it is.
inline void see_only(const std::string& node) {
    const char* made = "/tmp"; // where the new /dev is put together: it covers that for a moment
    if (access(node.c_str(), F_OK) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", made, "tmpfs", MS_NOSUID, "mode=755,size=1m") != 0)
        return;
    if (!own_gpu::fill(made, node) ||
        mount(nullptr, made, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, nullptr) != 0 ||
        mount(made, "/dev", nullptr, MS_MOVE, nullptr) != 0)
        umount2(made, MNT_DETACH);
}

#else

inline void see_only(const std::string&) {}

#endif

} // namespace mskb
