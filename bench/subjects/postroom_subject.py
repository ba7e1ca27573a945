class PostroomSubject:
    name = "postroom"
    async def open(self, arena): raise NotImplementedError("not there yet")
